"""Tasks that hang or are gone for good: what the others say, and which task ends."""

import signal

import pytest

from cifar10.output import checkpoints
from testbeds.processes import cluster
from tests.system import slow_program, small

pytestmark = pytest.mark.system

PATIENT = "--cluster-timeout=150"  # where the limit is not reached
SETTINGS = ("--output-dir=output", *small.SETTINGS, "--log-steps=20")


@pytest.mark.parametrize("mode", [(), ("--replication=in-graph",)], ids=["sync", "in-graph"])
def test_a_worker_that_hangs_is_named_and_the_last_checkpoint_counts(data, tmp_path, mode):
    arguments = (data, *SETTINGS, *mode, "--train-steps=1000000", "--checkpoint-steps=1000000")
    with cluster(tmp_path, *arguments) as tasks:
        tasks.start("ps/0", "worker/0", more=[PATIENT])
        tasks.wait_for_listening("ps/0", "worker/0")  # So the master waits for nobody who starts.
        tasks.start("master/0", more=["--cluster-timeout=12"])
        tasks.wait_for_output("master/0", "  step ", times=2)
        tasks.kill("worker/0", signal.SIGSTOP)
        assert tasks.exit_code("master/0") == 1
        assert "training failed: worker/0 (127.0.0.1:" in tasks.output("master/0").splitlines()[-1]
        assert checkpoints.latest_step(str(tmp_path / "output")) == 0
        tasks.kill("worker/0")


def test_a_worker_without_progress_ends_and_the_others_go_on_once_it_is_started_again(
    data, tmp_path, monkeypatch
):
    steps = ("--train-steps=150", "--checkpoint-steps=150")  # an epoch would be two steps
    arguments = (data, *SETTINGS, *steps, "--stall-timeout=15")
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
