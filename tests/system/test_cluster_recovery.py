"""Tasks that are killed and started again, and tasks that are gone for good."""

import pathlib
import re
import signal
import time

import pytest

from cifar10.output import checkpoints
from testbeds.processes import (
    MID_RUN,
    SAVING,
    START_UP,
    ClusterOfProcesses,
    cluster,
    kill_in_phase,
)
from tests.system import small

pytestmark = pytest.mark.system

ASYNC, SYNC, IN_GRAPH = ("--sync=false",), (), ("--replication=in-graph",)
STEPS, CHECKPOINT_STEPS = 600, 150
GIVE_UP = "--cluster-timeout=10"  # the tasks have loaded TensorFlow before they start
SETTINGS = (
    "--output-dir=output",
    *small.SETTINGS,
    f"--checkpoint-steps={CHECKPOINT_STEPS}",
    "--log-steps=50",
)


def last_step(folder: pathlib.Path) -> int:
    """Returns the global step of the latest checkpoint."""
    return checkpoints.latest_step(str(folder / "output"))


@pytest.mark.parametrize(
    ("mode", "role", "phase"),
    [
        (ASYNC, "worker/0", START_UP),
        (ASYNC, "evaluator/0", START_UP),  # Nothing waits for it, so training may end first.
        (SYNC, "master/0", SAVING),
        (SYNC, "worker/0", MID_RUN),
        (IN_GRAPH, "ps/0", MID_RUN),
    ],
)
def test_a_task_that_is_killed_and_started_again_does_not_keep_the_job_from_its_last_step(
    data, tmp_path, mode, role, phase
):
    arguments = (data, *SETTINGS, f"--train-steps={STEPS}", *mode)
    shape = {"evaluator": role == "evaluator/0", "fresh": phase == START_UP}
    with cluster(tmp_path, *arguments, **shape) as tasks:
        tasks.start()
        kill_in_phase(tasks, role, phase, tmp_path / "output")
        time.sleep(1.0)
        tasks.start(role)
        tasks.wait()
    assert STEPS <= last_step(tmp_path) <= STEPS + 3
    assert (tmp_path / "output" / "result.json").exists()


def test_the_others_end_as_usual_when_a_worker_is_gone_for_good(data, tmp_path):
    arguments = (data, *SETTINGS, *ASYNC, f"--train-steps={STEPS}", GIVE_UP)
    with cluster(tmp_path, *arguments) as tasks:
        tasks.start()
        kill_in_phase(tasks, "worker/0", MID_RUN, tmp_path / "output")
        tasks.wait(but=["worker/0"])
    assert STEPS <= last_step(tmp_path) <= STEPS + 3


def test_a_ps_that_never_comes_is_named_by_all_who_need_it(data, tmp_path):
    with cluster(tmp_path, data, *SETTINGS, GIVE_UP) as tasks:
        tasks.start("master/0", "worker/0")
        for label in ("master/0", "worker/0"):
            assert tasks.exit_code(label) == 1
            assert misses(tasks, label, "ps/0")


def test_a_master_that_is_gone_for_good_is_named_by_the_others(data, tmp_path):
    with cluster(tmp_path, data, *SETTINGS, GIVE_UP) as tasks:
        tasks.start()
        kill_in_phase(tasks, "master/0", MID_RUN, tmp_path / "output")
        for label in ("ps/0", "worker/0"):
            assert tasks.exit_code(label) == 1
            assert misses(tasks, label, "master/0")


def test_a_worker_that_is_gone_for_good_is_named_where_each_update_needs_it(data, tmp_path):
    with cluster(tmp_path, data, *SETTINGS, GIVE_UP) as tasks:
        tasks.start()
        kill_in_phase(tasks, "worker/0", MID_RUN, tmp_path / "output")
        assert tasks.exit_code("master/0") == 1
        assert misses(tasks, "master/0", "worker/0")


def test_trainers_that_wait_for_a_ps_that_hangs_heed_a_signal(data, tmp_path):
    with cluster(tmp_path, data, *SETTINGS) as tasks:
        tasks.start()
        tasks.wait_for_output("master/0", "validation accuracy")
        saved = last_step(tmp_path)
        tasks.kill("ps/0", signal.SIGSTOP)
        time.sleep(2)  # Into a step that does not end.
        for label in ("master/0", "worker/0"):
            tasks.kill(label, signal.SIGUSR1)
            tasks.kill(label, signal.SIGTERM)
        for label in ("master/0", "worker/0"):
            assert tasks.exit_code(label) == 128 + signal.SIGTERM
            assert "stopped by signal 15" in tasks.output(label).splitlines()[-1]
            assert "_call_tf_sessionrun" in tasks.output(label)
        tasks.kill("ps/0")
    assert last_step(tmp_path) >= saved


def misses(tasks: ClusterOfProcesses, label: str, missing: str) -> bool:
    """Returns whether the last line of a task names the missing task and its address."""
    job, _, index = missing.partition("/")
    reason = f"{missing} ({tasks.jobs[job][int(index)]}) has not answered for 10 s"
    last = tasks.output(label).splitlines()[-1]
    return re.match(f"training failed: {re.escape(reason)}", last) is not None
