"""A run that goes on with other records than those that it began with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10 import schema
from data_prep import cli
from tests.cifar10.forks import Forks

pytestmark = pytest.mark.system

PER_CLASS = 4
# All 40 images are a batch, as they are.
WHOLE = ("--train-batch-size=40", "--num-towers=1", "--use-distortion-for-training=false")
# A rate that changes nothing, so that training and evaluation see the same weights.
STILL = ("--learning-rate=1e-30", "--warmup-epochs=0", "--weight-decay=0", "--schedule=constant")


def make_records(folder: Path, lowest: int) -> Path:
    """Makes records of 40 images with values from `lowest` to `lowest` + 60; eval has the same."""
    random = np.random.default_rng(lowest)
    for name in schema.CLASS_NAMES:
        for row in range(PER_CLASS):
            image = Image.fromarray(random.integers(lowest, lowest + 60, (32, 32, 3), np.uint8))
            for split in ("train", "test"):
                (folder / "images" / split / name).mkdir(parents=True, exist_ok=True)
                image.save(folder / "images" / split / name / f"{row}.png")
    words = ["--source", str(folder / "images"), "--out", str(folder / "data")]
    assert cli.main([*words, "--validation-size", "0"]) == 0
    return folder / "data"


@pytest.fixture(scope="module")
def bright(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_records(tmp_path_factory.mktemp("bright"), 190)


@pytest.fixture(scope="module")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_records(tmp_path_factory.mktemp("dark"), 5)


def trained(forks: Forks, cwd: Path, data: Path, *arguments: str) -> "dict[str, Any]":
    """Trains; returns the last row of training, and the figures of eval."""
    done = forks.run(f"--data-dir={data}", *WHOLE, *arguments, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads((cwd / "output/result.json").read_text())
    rows = [json.loads(line) for line in (cwd / "output/metrics.jsonl").read_text().splitlines()]
    return {
        "train": [row for row in rows if row["split"] == "train"][-1],
        "eval": result["figures"],
        "out": done.stdout,
    }


def checkpoint(cwd: Path, name: str) -> Any:
    return tf.train.load_checkpoint(str(cwd / "output")).get_tensor(name)


def test_training_and_evaluation_normalize_other_records_as_the_first_ones(
    bright: Path, dark: Path, tmp_path: Path, forks: Forks
) -> None:
    trained(forks, tmp_path, bright, "--model=mlp", "--train-steps=30", "--learning-rate=0.1")
    first = checkpoint(tmp_path, "input/channel_mean")
    assert all(200 < value < 240 for value in first)
    found = trained(forks, tmp_path, dark, "--model=mlp", "--train-steps=31", *STILL)
    assert found["train"]["step"] == found["eval"]["global_step"] == 31
    assert found["train"]["accuracy"] == pytest.approx(found["eval"]["eval_accuracy"], abs=1e-6)
    assert found["train"]["loss"] == pytest.approx(found["eval"]["eval_loss"], rel=1e-4)
    np.testing.assert_array_equal(checkpoint(tmp_path, "input/channel_mean"), first)
