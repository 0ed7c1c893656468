"""Whole runs in an output folder with damaged files end as an undisturbed one does."""

import json
import pathlib
import shutil
import subprocess
from typing import Callable

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.cifar10 import program
from tests.cifar10.forks import Forks

# 180 training and 20 validation images; a checkpoint every four steps. The schedule does not depend
# on the last step.
WORDS = (
    "--model=mlp",
    "--train-batch-size=16",
    "--checkpoint-steps=4",
    "--schedule=constant",
    "--warmup-epochs=0",
)

Train = Callable[[pathlib.Path, int], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with records in its default place."""
    return program.make_records(tmp_path_factory.mktemp("work") / "data", 200).parent


@pytest.fixture(scope="module")
def train(folder: pathlib.Path, forks: Forks) -> Train:
    """Trains in a folder up to a step."""

    def run(output: pathlib.Path, steps: int) -> "subprocess.CompletedProcess[str]":
        words = (f"--train-steps={steps}", f"--output-dir={output}")
        return forks.run(*WORDS, *words, cwd=folder)

    return run


@pytest.fixture(scope="module")
def half_way(train: Train, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run that has ended at step 8, with checkpoints of steps 0, 4 and 8."""
    output = tmp_path_factory.mktemp("half-way") / "output"
    assert train(output, 8).returncode == 0
    return output


@pytest.fixture(scope="module")
def undisturbed(train: Train, half_way: pathlib.Path) -> dict[str, np.ndarray]:
    """The weights of the same run, continued to step 12."""
    output = half_way.parent / "undisturbed"
    shutil.copytree(half_way, output)
    assert train(output, 12).returncode == 0
    return weights(output)


def weights(output: pathlib.Path) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(output))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.system
def test_a_damaged_file_costs_no_more_than_the_steps_since_the_last_sound_checkpoint(
    train: Train,
    half_way: pathlib.Path,
    undisturbed: dict[str, np.ndarray],
    tmp_path: pathlib.Path,
) -> None:
    output = tmp_path / "output"
    shutil.copytree(half_way, output)
    (output / "model.ckpt-8.index").write_bytes(np.random.RandomState(0).bytes(200))
    ended = train(output, 12)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "model.ckpt-8 is damaged (" in ended.stdout
    found = weights(output)
    assert sorted(found) == sorted(undisturbed)
    for variable, value in undisturbed.items():
        np.testing.assert_array_equal(found[variable], value, variable)
    result = json.loads((output / "result.json").read_text())
    assert result["figures"]["global_step"] == 12
