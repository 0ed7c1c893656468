"""How a cluster ends, and tasks that join it late."""

import json
import pathlib
import re
import signal

import pytest

from cifar10.output import checkpoints
from testbeds.processes import ClusterOfProcesses, cluster
from tests.cifar10 import program

pytestmark = pytest.mark.system

SETTINGS = (
    "--output-dir=output",
    "--model=mlp",
    "--learning-rate=0.001",
    "--schedule=constant",
    "--use-distortion-for-training=false",
    "--train-batch-size=20",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The --data-dir flag of records with 180 training, 20 validation and 40 eval images."""
    return f"--data-dir={program.make_records(tmp_path_factory.mktemp('records') / 'data', 200)}"


def last_step(folder: pathlib.Path) -> int:
    """Returns the global step of the latest checkpoint."""
    return checkpoints.latest_step(str(folder / "output"))


def steps_of(tasks: ClusterOfProcesses, label: str) -> int:
    """Returns how many steps a worker trained, according to its output."""
    found = re.search(r"; it trained ([\d,]+) steps", tasks.output(label))
    assert found, tasks.all_output()
    return int(found[1].replace(",", ""))


def test_a_worker_that_comes_late_joins_and_one_that_comes_after_the_end_says_so(data, tmp_path):
    arguments = ("--train-steps=4000", "--checkpoint-steps=4000", "--log-steps=100", "--sync=false")
    with cluster(tmp_path, data, *SETTINGS, *arguments, num_workers=2) as tasks:
        tasks.start("ps/0", "master/0")
        # Until the late worker starts, the chief trains alone: each of its steps is a global step.
        tasks.wait_for_output("master/0", "  step 2")
        tasks.start("worker/0")
        tasks.wait()
        assert steps_of(tasks, "worker/0") > 0
        tasks.start("worker/1")
        assert tasks.exit_code("worker/1") == 0
    last = f"worker/1 ends: training is over at step {last_step(tmp_path):,}; it trained 0 steps\n"
    assert tasks.output("worker/1") == last


@pytest.mark.parametrize("mode", [(), ("--replication=in-graph",)])
def test_a_signal_to_all_tasks_at_once_lets_the_chief_save(data, tmp_path, mode):
    arguments = ("--train-steps=1000000", "--checkpoint-steps=1000000", "--log-steps=100")
    with cluster(tmp_path, data, *SETTINGS, *arguments, *mode) as tasks:
        tasks.start()
        tasks.wait_for_output("master/0", "  step ")
        for label in ("ps/0", "worker/0", "master/0"):
            tasks.kill(label, signal.SIGTERM)
            tasks.kill(label, signal.SIGTERM)  # as if from its launcher and from the scheduler
        assert [tasks.exit_code(label) for label in tasks.labels] == [143, 143, 143]
        assert not tasks.listening()
    for label in tasks.labels:
        last = tasks.output(label).splitlines()[-1]
        assert last == "stopped by signal 15; run the same command to continue"
    assert last_step(tmp_path) >= 100


@pytest.mark.parametrize("listed", [True, False])  # not listed: Estimator's own convention
def test_an_evaluator_validates_until_training_is_over(data, tmp_path, listed):
    steps = ("--train-steps=300", "--checkpoint-steps=100")
    with cluster(tmp_path, data, *SETTINGS, *steps, evaluator=listed) as tasks:
        tasks.start("evaluator/0")
        tasks.wait_for_output("evaluator/0", "evaluator of output")
        tasks.start("ps/0", "worker/0", "master/0")
        tasks.wait()
    assert "the chief evaluates and reports" in tasks.output("evaluator/0").splitlines()[-1]
    assert "eval accuracy" in tasks.output("master/0")
    # Only the last checkpoint may be left to the chief.
    assert tasks.output("master/0").count("validation accuracy") <= 1
    result = json.loads((tmp_path / "output" / "result.json").read_text())
    assert result["figures"]["global_step"] == last_step(tmp_path)
