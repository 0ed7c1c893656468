"""Tasks that hang or are gone for good: what the others say, and which task ends."""

import signal
import time

import pytest

from cifar10.output import checkpoints
from testbeds.processes import ClusterOfProcesses, cluster
from tests.system import slow_program, small

pytestmark = pytest.mark.system

PATIENT = "--cluster-timeout=150"  # where the limit is not reached
HANGING = ("--train-steps=150", "--checkpoint-steps=150")  # an epoch would be two steps
IN_GRAPH = ("--replication=in-graph",)
GIVE_UP = "--cluster-timeout=10"  # the tasks have loaded TensorFlow before they start
SETTINGS = (
    "--output-dir=output",
    *small.SETTINGS,
    "--log-steps=20",
)


def start(tasks: ClusterOfProcesses, timeout_secs: int = 150) -> None:
    """Starts all tasks, the master last, so that it waits for nobody who is still starting.

    Args:
      tasks: the cluster.
      timeout_secs: the master's --cluster-timeout.
    """
    others = [label for label in tasks.labels if label != "master/0"]
    tasks.start(*others, more=[PATIENT])
    tasks.wait_for_listening(*others)
    tasks.start("master/0", more=[f"--cluster-timeout={timeout_secs}"])


def address(tasks: ClusterOfProcesses, label: str) -> str:
    job, _, index = label.partition("/")
    return tasks.jobs[job][int(index)]


@pytest.mark.parametrize("mode", [(), IN_GRAPH], ids=["sync", "in-graph"])
def test_a_worker_that_hangs_is_named_and_the_last_checkpoint_counts(data, tmp_path, mode):
    arguments = (data, *SETTINGS, *mode, "--train-steps=1000000", "--checkpoint-steps=1000000")
    with cluster(tmp_path, *arguments) as tasks:
        start(tasks, timeout_secs=12)
        tasks.wait_for_output("master/0", "  step ", times=2)
        tasks.kill("worker/0", signal.SIGSTOP)
        assert tasks.exit_code("master/0") == 1
        assert "training failed: worker/0 (127.0.0.1:" in tasks.output("master/0").splitlines()[-1]
        assert checkpoints.latest_step(str(tmp_path / "output")) == 0
        tasks.kill("worker/0")


def test_a_signal_while_a_worker_hangs_ends_the_master(data, tmp_path):
    arguments = (data, *SETTINGS, "--train-steps=1000000", "--checkpoint-steps=1000000")
    with cluster(tmp_path, *arguments) as tasks:
        start(tasks)
        tasks.wait_for_output("master/0", "  step ", times=2)
        tasks.kill("worker/0", signal.SIGSTOP)
        time.sleep(1)  # Into a step that does not end.
        tasks.kill("master/0", signal.SIGUSR1)
        tasks.kill("master/0", signal.SIGTERM)
        assert tasks.exit_code("master/0") == 128 + signal.SIGTERM
        assert "_call_tf_sessionrun" in tasks.output("master/0")
        assert "stopped by signal 15" in tasks.output("master/0").splitlines()[-1]
        tasks.kill("worker/0")


def test_tasks_that_stand_still_for_a_while_cost_only_time(data, tmp_path):
    arguments = (data, *SETTINGS, "--train-steps=1600", "--checkpoint-steps=800")
    others = {"ps/0": "master/0", "worker/0": "master/0", "master/0": "worker/0"}
    with cluster(tmp_path, *arguments) as tasks:
        start(tasks)
        for label, other in others.items():
            shown = tasks.output("master/0").count("  step ")
            tasks.wait_for_output("master/0", "  step ", times=shown + 2)
            tasks.kill(label, signal.SIGSTOP)
            tasks.wait_for_output(other, f"{label} ({address(tasks, label)}) does not answer;")
            tasks.kill(label, signal.SIGCONT)
            tasks.wait_for_output(other, f"{label} ({address(tasks, label)}) answers again")
        tasks.wait()
    assert checkpoints.latest_step(str(tmp_path / "output")) == 1600


def test_a_worker_without_progress_ends_and_the_others_go_on_once_it_is_started_again(
    data, tmp_path, monkeypatch
):
    arguments = (data, *SETTINGS, *HANGING, "--stall-timeout=15")
    with cluster(tmp_path, *arguments, program=slow_program.PROGRAM) as tasks:
        tasks.start("ps/0", more=[PATIENT])
        monkeypatch.setenv("HANG", "input")
        tasks.start("worker/0", more=[PATIENT])
        monkeypatch.delenv("HANG")
        tasks.wait_for_listening("ps/0", "worker/0")
        tasks.start("master/0", more=[PATIENT])
        assert tasks.exit_code("worker/0", 150) == 1
        words = "no progress in a training step for 15 s"
        assert f"training failed: {words} (--stall-timeout)" in tasks.output("worker/0")
        assert "Current thread" in tasks.output("worker/0")
        assert tasks.processes["master/0"].poll() is None, tasks.all_output()
        tasks.start("worker/0", more=[PATIENT])
        tasks.wait()
    assert checkpoints.latest_step(str(tmp_path / "output")) == 150


def test_a_master_without_input_ends_and_workers_do_not(data, tmp_path, monkeypatch):
    arguments = (data, *SETTINGS, *HANGING, "--stall-timeout=8")
    with cluster(tmp_path, *arguments, program=slow_program.PROGRAM) as tasks:
        tasks.start("ps/0", "worker/0", more=[PATIENT])
        tasks.wait_for_listening("ps/0", "worker/0")
        monkeypatch.setenv("HANG", "input")
        tasks.start("master/0", more=[PATIENT])
        monkeypatch.delenv("HANG")
        assert tasks.exit_code("master/0", 150) == 1
        assert "no progress in a training step for 8 s" in tasks.output("master/0")
        assert tasks.processes["worker/0"].poll() is None, tasks.all_output()


def test_the_others_end_as_usual_when_a_worker_is_gone_for_good(data, tmp_path):
    arguments = ("--sync=false", "--train-steps=600", "--checkpoint-steps=150", GIVE_UP)
    with cluster(tmp_path, data, *SETTINGS, *arguments) as tasks:
        tasks.start()
        tasks.wait_for_output("master/0", "validation accuracy")
        tasks.kill("worker/0")
        tasks.wait(but=["worker/0"])
    assert 600 <= checkpoints.latest_step(str(tmp_path / "output")) <= 603


def test_a_ps_that_never_comes_is_named_by_all_who_need_it(data, tmp_path):
    with cluster(tmp_path, data, *SETTINGS, GIVE_UP) as tasks:
        tasks.start("master/0", "worker/0")
        for label in ("master/0", "worker/0"):
            assert misses(tasks, label, "ps/0")


def test_a_master_that_is_gone_for_good_is_named_by_the_others(data, tmp_path):
    with cluster(tmp_path, data, *SETTINGS, "--checkpoint-steps=150", GIVE_UP) as tasks:
        tasks.start()
        tasks.wait_for_output("master/0", "  step ")
        tasks.kill("master/0")
        for label in ("ps/0", "worker/0"):
            assert misses(tasks, label, "master/0")


def misses(tasks: ClusterOfProcesses, label: str, missing: str) -> bool:
    """Returns whether a task ends with 1, and its last line names the missing task."""
    assert tasks.exit_code(label) == 1
    reason = f"{missing} ({address(tasks, missing)}) has not answered for 10 s"
    last = tasks.output(label).splitlines()[-1]
    return last.startswith(f"training failed: {reason}")
