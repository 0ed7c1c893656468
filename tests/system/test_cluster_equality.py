"""A cluster trains the same weights as one process, or an equally accurate model."""

import json
import pathlib

import numpy as np
import pytest

from testbeds.processes import cluster
from tests.cifar10 import program
from tests.cifar10.steps import read_checkpoint

pytestmark = pytest.mark.system

# In the cluster and in one process, the towers have the same images, and so the same statistics.
PLAIN = ("--schedule=constant", "--seed=3")
MODELS = {
    "mlp": ("--model=mlp", "--optimizer=adam", "--learning-rate=0.001"),
    # At a rate of 0.01, rounding errors grow to 1e-4 in 20 steps, within one process, too.
    "resnet": ("--num-layers=8", "--batch-norm=off", "--learning-rate=0.001"),
    # The rates are for 2,048 and 1,024 images; for 40 images, they are 0.0006 and 0.001. At 0.05,
    # 2e-7 more label smoothing changes the slots of one process by 1e-2; at 0.03, leaving out
    # lookahead changes them by 3e-2.
    "fastnet": ("--recipe=fast", "--muon-rate=0.03", "--learning-rate=0.03"),
}
IN_GRAPH = "--replication=in-graph"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    """180 training images, fewer than a run of 20 steps uses."""
    return program.make_records(tmp_path_factory.mktemp("small") / "data", 200)


@pytest.fixture(scope="module")
def easy_data(tmp_path_factory) -> pathlib.Path:
    """9,000 training images, nearly all of which a small network learns, and 2,000 eval images."""
    return program.make_records(tmp_path_factory.mktemp("easy") / "data", 10_000)


@pytest.fixture(scope="module")
def local_weights(data, tmp_path_factory, forks) -> dict[str, dict[str, np.ndarray]]:
    """Model -> values of the checkpoint of one process after 20 steps with batches of 40."""
    found = {}
    for name, flags in MODELS.items():
        output = tmp_path_factory.mktemp(name)
        places = (f"--data-dir={data}", f"--output-dir={output}")
        sizes = ("--train-batch-size=40", "--num-towers=2", "--train-steps=20")
        done = forks.run(*PLAIN, *flags, *places, *sizes, cwd=output)
        assert done.returncode == 0, done.stderr
        found[name] = read_checkpoint(str(output))
    return found


def figures(output: pathlib.Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((output / "result.json").read_text())["figures"]
    return found


@pytest.mark.parametrize(
    ("model", "num_ps", "replication"),
    [("mlp", 2, IN_GRAPH), ("resnet", 2, ""), ("fastnet", 1, "")],
)
def test_two_synchronous_trainers_give_the_weights_of_one_process_with_twice_the_batch(
    data, tmp_path, local_weights, model, num_ps, replication
):
    output = tmp_path / "output"
    places = (f"--data-dir={data}", f"--output-dir={output}")
    sizes = ("--train-batch-size=20", "--num-towers=1", "--train-steps=20")
    arguments = (*PLAIN, *MODELS[model], *places, *sizes, *replication.split())
    with cluster(tmp_path, *arguments, num_ps=num_ps, num_workers=1) as tasks:
        tasks.start()
        tasks.wait()
    found, expected = read_checkpoint(str(output)), local_weights[model]
    assert sorted(found) == sorted(expected)
    assert (found["global_step"], found["examples_seen"]) == (20, 800)
    for name, value in found.items():
        # Slots hold gradients. A ReLU whose input is within rounding error of zero changes them a
        # hundred times as much as the weights, with a rate of 0.01.
        is_slot = name.endswith(("/Momentum", "/Muon", "/Adam", "/Adam_1"))
        tolerance = 1e-2 if is_slot else 1e-4
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=tolerance, err_msg=name)


def test_an_asynchronous_run_is_as_accurate_as_a_local_one_within_a_point(
    easy_data, tmp_path, forks
):
    learn = ("--num-layers=8", "--train-batch-size=50", "--train-epochs=6", "--schedule=cosine")
    # On busy cores, gradients are late by two steps. That costs momentum 3 points here, Adam 0.4.
    learn += ("--optimizer=adam", "--learning-rate=0.005")
    arguments = (*learn, "--use-distortion-for-training=false")
    arguments += (f"--data-dir={easy_data}", "--checkpoint-steps=540")
    done = forks.run(*arguments, "--output-dir=alone", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with cluster(
        tmp_path, *arguments, "--output-dir=several", "--sync=false", num_workers=1
    ) as tasks:
        tasks.start()
        tasks.wait()
    alone, several = figures(tmp_path / "alone"), figures(tmp_path / "several")
    assert alone["examples_seen"] == 54_000
    # Steps that were in progress when the last step was done count, too.
    assert 54_000 <= several["examples_seen"] <= 54_150
    assert several["eval_accuracy"] == pytest.approx(alone["eval_accuracy"], abs=0.01)
    assert alone["eval_accuracy"] > 0.95
