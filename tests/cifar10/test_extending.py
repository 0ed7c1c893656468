"""What docs/extending.md adds to the program works, from a file outside the tree."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import shell
from tests.documents import code_blocks

SECTIONS = ("A model", "An optimizer", "A schedule", "A source of images")
START = """
from data_prep import cli

assert cli.main(["--source=raw", "--out=data"]) == 0

from cifar10 import main
from cifar10.host.process import leave

leave(main.main())
"""
FLAGS = (
    "--model=conv_pool --optimizer=sign --sign-decay=0.5 --schedule=halves --train-steps=6 "
    "--train-batch-size=20 --warmup-epochs=0 --log-steps=1 --summary-steps=1 --weight-decay=0"
)


@pytest.fixture(scope="module")
def result(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The result of a run with one of each: three classes, each of another colour."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "raw").mkdir()
    labels = np.arange(90, dtype=np.uint8) % 3
    images = np.random.default_rng(1).integers(0, 99, (90, 3, 1024), np.uint8)
    images[np.arange(90), labels] += 99
    arrays = {"images": images.reshape(90, -1), "labels": labels}
    np.savez(
        folder / "raw" / "images.npz",
        names=["red", "green", "blue"],
        **{f"{split}_{key}": array for split in ("train", "test") for key, array in arrays.items()},
    )
    for title in SECTIONS:  # Each by itself, as a file that a reader would write: model.py, ...
        code = code_blocks("docs/extending.md", title, "python")[0]
        (folder / f"{title.split()[1]}.py").write_text(code)
    names = ", ".join(title.split()[1] for title in SECTIONS)
    (folder / "own.py").write_text(f"import {names}\n{START}")
    shell.run(f"{sys.executable} own.py {FLAGS}", folder, env={"PYTHONPATH": str(root)})
    return json.loads((folder / "output" / "result.json").read_text())


def test_a_model_trains_by_an_optimizer_with_a_setting_and_a_schedule_of_its_own(result):
    assert result["model"] == "one convolution"
    assert result["configuration"].items() >= {"optimizer": "sign", "sign_decay": 0.5}.items()
    rates = {row["step"]: row["learning_rate"] for row in result["history"]["train"]}
    # The first three of six steps have the highest rate, the others half of it.
    assert [rates[step] for step in range(2, 7)] == [0.001, 0.001, 0.0005, 0.0005, 0.0005]


def test_the_records_are_of_the_source_and_the_model_has_its_classes(result):
    assert result["data"]["source"]["kind"] == "npz"
    assert result["class_names"] == ["red", "green", "blue"]
    matrix = np.array(result["confusion_matrix"])
    assert (matrix.shape, matrix.sum()) == ((3, 3), 90)
