import math
import subprocess
import sys

from benchmarks.clusters.many import Watch, between, servers_use


def line(task: str, step: int) -> str:
    return (
        f"[{task} localhost] epoch 0.1/1  step {step}/20  loss 2.3  lr 0.1  9 images/s  1s left\n"
    )


def test_a_job_has_started_once_its_last_trainer_takes_a_step() -> None:
    watch = Watch(2)
    assert not watch.take("starts ps/0 on localhost\n", 1.0)
    assert not watch.take(line("master/0", 1), 2.0)
    assert watch.all_stepped == math.inf
    assert not watch.take(line("worker/0", 1), 3.0)
    assert watch.take(line("worker/0", 2), 4.0)
    assert (watch.all_stepped, watch.last_step) == (3.0, 4.0)


def test_the_last_step_is_when_its_first_line_came() -> None:
    watch = Watch(2)
    for secs, task, step in ((1.0, "master/0", 19), (2.0, "worker/0", 20), (3.0, "master/0", 20)):
        watch.take(line(task, step), secs)
    assert watch.last_step == 2.0


def test_a_job_that_fails_before_its_first_step_has_no_times() -> None:
    watch = Watch(2)
    watch.take("master/0 failed\n", 3.0)
    assert between(1.0, watch.all_stepped) is None
    assert between(watch.last_step, 4.0) is None
    assert between(1.0, 3.26) == 2.3


def test_only_parameter_servers_of_the_job_are_looked_at() -> None:
    started = []
    for mark, kind in (("--mine=1", "ps"), ("--mine=1", "worker"), ("--other=1", "ps")):
        words = [sys.executable, "-c", "print(flush=True); input()", mark]
        variable = {"TF_CONFIG": f'{{"task": {{"type": "{kind}"}}}}'}
        pipe = subprocess.PIPE
        one = subprocess.Popen(words, env=variable, stdin=pipe, stdout=pipe)
        started.append(one)
        assert one.stdout is not None
        one.stdout.readline()
    try:
        (use,) = servers_use("--mine=1")
    finally:
        for one in started:
            one.communicate(b"\n")
    assert 1 < use.memory_mb <= use.peak_mb < 1000
    assert use.descriptors >= 3
