"""Three trainers and two parameter servers reach the accuracy of one process."""

import json
import pathlib

import pytest

from testbeds.processes import cluster
from tests.cifar10 import program
from tests.cifar10.forks import Forks

pytestmark = pytest.mark.system

STEPS = 375  # steps of 60 images: 22,500 images, one and a quarter epochs
# The rate is 0.05 for 60 images: those of one process, or of a synchronous step of three trainers
# with 20 images each. An asynchronous step has 20 images, so its rate is a third of that.
LEARN = (
    *("--model=resnet", "--num-layers=8", "--use-distortion-for-training=false"),
    *("--optimizer=momentum", "--momentum=0.9", "--weight-decay=0.0002", "--seed=1"),
    *(
        "--schedule=cosine",
        "--warmup-epochs=0.1",
        "--learning-rate=0.05",
        "--learning-rate-batch=60",
    ),
    "--checkpoint-steps=10000",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """18,000 training, 2,000 validation and 4,000 eval images of drawn shapes.

    Two equally good networks disagree about one image in twenty. With 4,000 images, their
    accuracies then differ by a third of a percentage point by chance.
    """
    return program.make_records(tmp_path_factory.mktemp("records") / "data", 20_000)


def figures(output: pathlib.Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((output / "result.json").read_text())["figures"]
    return found


@pytest.fixture(scope="module")
def alone(
    data: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, forks: Forks
) -> dict[str, float]:
    """The figures of one process, whose batch is as large as those of all three trainers."""
    folder = tmp_path_factory.mktemp("alone")
    places = (f"--data-dir={data}", "--output-dir=output")
    done = forks.run(*LEARN, *places, "--train-batch-size=60", f"--train-steps={STEPS}", cwd=folder)
    assert done.returncode == 0, done.stderr
    return figures(folder / "output")


def three_trainers(data: pathlib.Path, folder: pathlib.Path, *arguments: str) -> dict[str, float]:
    """Returns the figures of a master and two workers, 20 images each, with two ps."""
    places = (f"--data-dir={data}", "--train-batch-size=20", "--output-dir=output")
    with cluster(folder, *LEARN, *places, *arguments, num_ps=2, num_workers=2) as tasks:
        tasks.start()
        tasks.wait()
    return figures(folder / "output")


def test_synchronous_trainers_come_within_a_point_of_one_process_with_three_times_the_batch(
    data, tmp_path, alone
):
    three = three_trainers(data, tmp_path, f"--train-steps={STEPS}")
    assert alone["eval_accuracy"] > 0.8
    assert alone["examples_seen"] == three["examples_seen"] == 22_500
    assert alone["global_step"] == three["global_step"] == 375
    assert three["eval_accuracy"] == pytest.approx(alone["eval_accuracy"], abs=0.01)


def test_asynchronous_trainers_come_near_one_process(data, tmp_path, alone):
    three = three_trainers(data, tmp_path, "--sync=false", f"--train-steps={3 * STEPS}")
    # Steps that were in progress when the last step was done count, too.
    assert 1125 <= three["global_step"] <= 1130
    assert three["examples_seen"] == 20 * three["global_step"]
    assert three["eval_accuracy"] > alone["eval_accuracy"] - 0.03
