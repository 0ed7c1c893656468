"""Our records hold, for readers that know nothing of ours, what the source holds."""

import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep import cli
from tests.data_prep import made
from tests.documents import FORMATS, code_blocks
from tests.outside import snippets

pytestmark = pytest.mark.system

Images = dict[bytes, int]  # pixels in rows, RGB each -> label; all images here differ

SAVE = """
import numpy as np
read_splits = {}
for split in ("train", "validation", "eval"):
    pairs = list(read(split).as_numpy_iterator())
    read_splits[f"{split}_images"] = np.stack([image for image, _ in pairs])
    read_splits[f"{split}_labels"] = np.array([label for _, label in pairs])
np.savez("read.npz", **read_splits)
"""

# A channel-first image of TFDS's becomes one like the others'.
TFDS = """
def read(split):
    dataset = builder.as_dataset(split=split)
    return dataset.map(lambda row: (tf.transpose(row["image"], [1, 2, 0]), row["label"]))

import tensorflow as tf
assert builder.info.features["label"].names[3] == "cat"
assert {name: split.num_examples for name, split in builder.info.splits.items()} == {
    "train": 90, "validation": 10, "eval": 20
}
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """cifar-10-python.tar.gz in small: five training batches of 20 images, a test batch of 20."""
    folder = tmp_path_factory.mktemp("archive")
    made.python_folder(folder / "cifar-10-batches-py")
    return made.tar(folder / "cifar-10-python.tar.gz", folder / "cifar-10-batches-py")


def prepare(source: Path, folder: Path, *arguments: str) -> Path:
    """A folder whose `data` has the source's records."""
    assert cli.main(["--source", str(source), "--out", str(folder / "data"), *arguments]) == 0
    return folder


@pytest.fixture(scope="module")
def prepared(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(archive, tmp_path_factory.mktemp("prepared"), "--shards", "3")


def in_archive(path: Path, members: list[str]) -> Images:
    """What numpy reads from the archive's batches, by the description on the data set's page."""
    found: Images = {}
    with tarfile.open(path) as archive:
        for name in members:
            member = archive.extractfile(f"cifar-10-batches-py/{name}")
            assert member is not None
            batch = pickle.loads(member.read(), encoding="bytes")
            # "The first 1024 entries contain the red channel values, ... in row-major order."
            rows = batch[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            found.update({row.tobytes(): label for row, label in zip(rows, batch[b"labels"])})
    return found


def what_is_read(code: str, folder: Path, **run: Any) -> tuple[Images, Images]:
    """What a reader's code gets from records: training and validation images, eval images."""
    snippets.run_python(code + SAVE, folder, **run)
    with np.load(folder / "read.npz") as arrays:
        splits = {
            split: [
                (image.astype(np.uint8).tobytes(), int(label))
                for image, label in zip(arrays[f"{split}_images"], arrays[f"{split}_labels"])
            ]
            for split in ("train", "validation", "eval")
        }
    training, evaluation = splits["train"] + splits["validation"], splits["eval"]
    assert (len(dict(training)), len(dict(evaluation))) == (len(training), len(evaluation))
    return dict(training), dict(evaluation)


def test_a_plain_tf_data_script_reads_the_archives_images_and_labels(prepared, archive):
    (code,) = code_blocks(FORMATS, "Records", "python")
    training, evaluation = what_is_read(code, prepared)
    assert (len(training), len(evaluation)) == (100, 20)
    assert training == in_archive(archive, made.TRAINING_BATCHES)
    assert evaluation == in_archive(archive, ["test_batch"])


def test_tensorflow_datasets_reads_the_archives_images_and_labels(archive, tmp_path):
    (code,) = code_blocks(FORMATS, "TensorFlow Datasets", "python")
    folder = prepare(archive, tmp_path)
    python = snippets.python_with(Path(__file__).with_name("tfds.txt"), tmp_path / "tfds")
    training, evaluation = what_is_read(code + TFDS, folder, python=python)
    assert training == in_archive(archive, made.TRAINING_BATCHES)
    assert evaluation == in_archive(archive, ["test_batch"])
