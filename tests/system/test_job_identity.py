"""Two jobs that meet: who is foreign ends at once, and the other job trains on undisturbed."""

import json
import pathlib
import re

import pytest

from cifar10.output import checkpoints
from testbeds.processes import ClusterOfProcesses, cluster
from tests.cifar10 import program

pytestmark = pytest.mark.system

ASYNC, SYNC, IN_GRAPH = ("--sync=false",), (), ("--replication=in-graph",)
STEPS = 400
SETTINGS = (
    "--model=mlp",
    "--optimizer=adam",
    "--learning-rate=0.001",
    "--schedule=constant",
    "--use-distortion-for-training=false",
    "--train-batch-size=50",
    "--checkpoint-steps=100",
    "--log-steps=50",
    f"--train-steps={STEPS}",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    """The --data-dir flag of records with 180 training images; a step takes milliseconds."""
    return f"--data-dir={program.make_records(tmp_path_factory.mktemp('records') / 'data', 200)}"


def refused(tasks: ClusterOfProcesses, label: str, line: str) -> None:
    """Checks that a task has ended with exit code 2, and that its last line matches `line`."""
    assert tasks.exit_code(label, 150) == 2, tasks.output(label)
    last = tasks.output(label).splitlines()[-1]
    assert re.fullmatch(line, last), last
    assert "Traceback" not in tasks.output(label)


def all_steps_are_made(folder: pathlib.Path) -> None:
    """Checks that a job has made its steps, each once, and its figures."""
    assert STEPS <= checkpoints.latest_step(str(folder / "output")) <= STEPS + 3
    result = json.loads((folder / "output" / "result.json").read_text())
    assert result["status"] == "completed"


@pytest.mark.parametrize("mode", [SYNC, ASYNC, IN_GRAPH])
def test_a_master_with_another_jobs_ps_ends_and_that_job_goes_on(data, tmp_path, mode):
    arguments = (data, "--output-dir=output", *SETTINGS, *mode)
    with (
        cluster(tmp_path / "one", *arguments) as one,
        cluster(tmp_path / "two", *arguments) as two,
    ):
        two.jobs["ps"] = one.jobs["ps"]
        one.start()
        one.wait_for_output("master/0", "step ")
        two.start("master/0", "worker/0")
        (ps,), (ours,), (theirs,) = one.jobs["ps"], two.jobs["master"], one.jobs["master"]
        line = (
            rf"error: ps/0 \({ps}\) belongs to another job: master/0 of its cluster is {theirs}, "
            rf"of this task's cluster {ours}; .*"
        )
        refused(two, "master/0", line)
        if mode != IN_GRAPH:
            refused(two, "worker/0", line)
        one.wait()
    all_steps_are_made(tmp_path / "one")
    assert not list((tmp_path / "two" / "output").glob("model.ckpt*"))
