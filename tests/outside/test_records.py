"""Our records hold, for readers that know nothing of ours, what the source holds."""

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cifar10 import schema
from data_prep import cli
from tests.data_prep import made
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

# What the tutorial's estimator does with a record, down to its float32 images.
TUTORIAL = """
import tensorflow.compat.v1 as tf

def to_image(serialized):
    fields = dict(image=tf.FixedLenFeature((), tf.string), label=tf.FixedLenFeature((), tf.int64))
    fields = tf.parse_single_example(serialized, features=fields)
    pixels = tf.decode_raw(fields["image"], out_type=tf.uint8)
    pixels.set_shape([3 * 32 * 32])
    height_width_depth = tf.transpose(tf.reshape(pixels, [3, 32, 32]), perm=[1, 2, 0])
    return tf.cast(height_width_depth, tf.float32), tf.cast(fields["label"], tf.int32)

def read(split):
    return tf.data.TFRecordDataset([f"data/{split}.tfrecords"]).map(to_image)
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


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of images: PNG to train on, JPEG to evaluate, all noise."""
    folder = tmp_path_factory.mktemp("tree") / "images"
    for split, kind, count in (("train", "png", 4), ("test", "jpg", 2)):
        for label, name in enumerate(schema.CLASS_NAMES):
            place = folder / split / name
            place.mkdir(parents=True)
            for row in range(count):
                pixels = made.pixels(1000 * label + row + len(kind), 1).reshape(32, 32, 3)
                Image.fromarray(pixels).save(place / f"{split}{row}.{kind}")
    return folder


def prepare(source: Path, folder: Path, *arguments: str) -> Path:
    """A folder whose `data` has the source's records."""
    assert cli.main(["--source", str(source), "--out", str(folder / "data"), *arguments]) == 0
    return folder


@pytest.fixture(scope="module")
def prepared(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(archive, tmp_path_factory.mktemp("prepared"))


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


def in_tree(folder: Path) -> Images:
    """What Pillow reads from folders of images, one a class."""
    found: Images = {}
    for path in folder.glob("*/*"):
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            pixels = np.asarray(image)
        found[pixels.tobytes()] = schema.CLASS_NAMES.index(path.parent.name)
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
    (code,) = snippets.snippets("Records", "python")
    training, evaluation = what_is_read(code, prepared)
    assert (len(training), len(evaluation)) == (100, 20)
    assert training == in_archive(archive, made.TRAINING_BATCHES)
    assert evaluation == in_archive(archive, ["test_batch"])


def test_a_plain_tf_data_script_reads_shards_of_what_pillow_reads(images, tmp_path):
    (code,) = snippets.snippets("Records", "python")
    folder = prepare(images, tmp_path, "--shards", "3")
    training, evaluation = what_is_read(code, folder)
    assert (len(training), len(evaluation)) == (40, 20)
    assert training == in_tree(images / "train")
    assert evaluation == in_tree(images / "test")


def test_the_tutorials_reader_reads_the_archives_images_and_labels(prepared, archive):
    training, evaluation = what_is_read(TUTORIAL, prepared)
    assert training == in_archive(archive, made.TRAINING_BATCHES)
    assert evaluation == in_archive(archive, ["test_batch"])


def test_tensorflow_datasets_reads_the_archives_images_and_labels(archive, tmp_path):
    (code,) = snippets.snippets("TensorFlow Datasets", "python")
    folder = prepare(archive, tmp_path)
    python = snippets.python_with(Path(__file__).with_name("tfds.txt"), tmp_path / "tfds")
    training, evaluation = what_is_read(code + TFDS, folder, python=python)
    assert training == in_archive(archive, made.TRAINING_BATCHES)
    assert evaluation == in_archive(archive, ["test_batch"])
