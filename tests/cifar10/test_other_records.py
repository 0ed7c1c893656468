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
from tests.cifar10 import program
from tests.cifar10.forks import Forks

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


def test_training_and_evaluation_standardise_other_records_as_the_first_ones(
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


def test_fastnet_keeps_the_projection_of_the_records_that_its_means_are_of(
    bright: Path, dark: Path, tmp_path: Path, forks: Forks
) -> None:
    names = ("input/channel_mean", "input/channel_deviation", "model/whitening/projection")
    trained(forks, tmp_path, bright, "--model=fastnet", "--train-steps=1")
    first = [checkpoint(tmp_path, name) for name in names]
    trained(forks, tmp_path, dark, "--model=fastnet", "--train-steps=2")
    for name, value in zip(names, first):
        np.testing.assert_array_equal(checkpoint(tmp_path, name), value)


def test_a_run_that_goes_on_with_other_records_says_so_in_one_line(
    tmp_path: Path, forks: Forks
) -> None:
    one, other = (
        program.make_records(tmp_path / name, size) for name, size in (("a", 60), ("b", 50))
    )
    note = (
        "note: these records differ from those that this run began with (train, validation); "
        "images that trained it may now be in the validation split"
    )

    def said(data: Path, steps: int) -> list[str]:
        words = ("--model=mlp", "--train-batch-size=10", f"--train-steps={steps}")
        done = forks.run(*words, f"--data-dir={data}", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        return [line for line in done.stdout.splitlines() if line.startswith("note")]

    path = tmp_path / "output/model.json"
    assert said(one, 1) == said(one, 2) == []
    first = json.loads(path.read_text())
    files = json.loads((one / "manifest.json").read_text())["splits"]
    assert first["records"] == {
        split: [file["sha256"] for file in files[split]["files"]]
        for split in ("train", "validation")
    }
    assert said(other, 3) == said(other, 4) == [note]
    assert json.loads(path.read_text()) == first
    # A note of an earlier version gets what it lacks, if the images' means are those of the run.
    noted = first.pop("records")
    path.write_text(json.dumps(first))
    assert said(other, 5) == said(other, 6) == [note]
    assert json.loads(path.read_text())["records"] is None
    assert said(one, 7) == []
    assert json.loads(path.read_text())["records"] == noted


def test_other_training_files_alone_do_not_concern_the_validation_split(
    tmp_path: Path, forks: Forks
) -> None:
    data = program.make_records(tmp_path / "a", 60)
    words = ("--model=mlp", "--train-batch-size=10", f"--data-dir={data}")
    assert forks.run(*words, "--train-steps=1", cwd=tmp_path).returncode == 0
    path = tmp_path / "output/model.json"
    note = json.loads(path.read_text())
    note["records"]["train"] = ["another"]
    path.write_text(json.dumps(note))
    done = forks.run(*words, "--train-steps=2", cwd=tmp_path)
    assert "note: these records differ from those that this run began with (train)\n" in done.stdout


def test_a_run_that_goes_on_with_another_seed_says_so(tmp_path: Path, forks: Forks) -> None:
    data = program.make_records(tmp_path / "a", 60)
    words = ("--model=mlp", "--train-batch-size=10", f"--data-dir={data}")
    assert forks.run(*words, "--train-steps=1", "--seed=3", cwd=tmp_path).returncode == 0
    note = "note: this run began with --seed 3; with --seed 4, images that are still to come "
    done = forks.run(*words, "--train-steps=2", "--seed=4", cwd=tmp_path)
    assert f"{note}have another order, and some may come twice in an epoch\n" in done.stdout
    assert note not in forks.run(*words, "--train-steps=2", "--seed=4", cwd=tmp_path).stdout
    assert json.loads((tmp_path / "output/model.json").read_text())["seed"] == 3
    assert "note" not in forks.run(*words, "--train-steps=3", "--seed=3", cwd=tmp_path).stdout


def test_an_evaluation_on_records_of_other_classes_is_refused(
    bright: Path, tmp_path: Path, forks: Forks
) -> None:
    shapes = program.make_records(tmp_path / "shapes", 50)
    trained(forks, tmp_path, bright, "--model=mlp", "--train-steps=1")
    done = forks.run("--mode=evaluate", f"--data-dir={shapes}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "error: output holds a model for which label 0 is 'airplane'; in these records it is "
    )
    assert done.stderr.count("\n") == 1
    done = forks.run("--mode=evaluate", f"--data-dir={bright}", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
