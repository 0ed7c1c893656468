"""Two jobs that meet: who is foreign ends at once, and the other job trains on undisturbed."""

import json
import re
import signal

import pytest

from cifar10.output import checkpoints
from testbeds.processes import ClusterOfProcesses, cluster
from tests.system import small

# Each test starts two jobs, one after the other.
pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

SYNC, IN_GRAPH = (), ("--replication=in-graph",)
STEPS, WAIT_SECS = 300, 400
SETTINGS = (*small.SETTINGS, "--checkpoint-steps=100", "--log-steps=50", f"--train-steps={STEPS}")


def refused(tasks: ClusterOfProcesses, label: str, line: str) -> None:
    """Checks that a task has ended with exit code 2, and that its last line matches `line`."""
    assert tasks.exit_code(label, WAIT_SECS) == 2, tasks.output(label)
    last = tasks.output(label).splitlines()[-1]
    assert re.fullmatch(line, last), last
    assert "Traceback" not in tasks.output(label)


@pytest.mark.parametrize("mode", [SYNC, IN_GRAPH])
def test_a_master_with_another_jobs_ps_ends_and_that_job_goes_on(data, tmp_path, mode):
    arguments = (data, "--output-dir=output", *SETTINGS, *mode)
    with cluster(tmp_path / "one", *arguments) as one, cluster(tmp_path / "two", *arguments) as two:
        two.jobs["ps"] = one.jobs["ps"]
        one.start()
        one.wait_for_output("master/0", "validation accuracy", timeout_secs=WAIT_SECS)
        one.kill("master/0", signal.SIGSTOP)  # So that it does not end before the others come.
        two.start("master/0", "worker/0")
        (ps,), (ours,), (theirs,) = one.jobs["ps"], two.jobs["master"], one.jobs["master"]
        line = (
            rf"error: ps/0 \({ps}\) belongs to another job: it has the cluster master {theirs}; "
            rf".*, this task has the cluster master {ours}; .*"
        )
        refused(two, "master/0", line)
        if mode != IN_GRAPH:
            refused(two, "worker/0", line)
        one.kill("master/0", signal.SIGCONT)
        one.wait(WAIT_SECS)
    output = tmp_path / "one/output"
    assert STEPS <= checkpoints.latest_step(str(output)) <= STEPS + 3
    assert json.loads((output / "result.json").read_text())["status"] == "completed"
    assert not list((tmp_path / "two" / "output").glob("model.ckpt*"))
