import numpy as np
import pytest

from data_prep.errors import SourceError, UsageError
from tests.data_prep import made
from tests.data_prep.made import batch_pickle


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("python", mode) for mode in (None, "w", "w:gz", "w:bz2", "w:xz", "zip")),
        *(("binary", mode) for mode in (None, "w:gz")),
    ],
)
def test_published_archives_are_told_apart_and_hold_the_same(kind, mode, tmp_path):
    make = {"python": made.python_folder, "binary": made.binary_folder}[kind]
    path = made.packed(mode, make(tmp_path / "cifar-10-batches"))
    dataset = made.load(path)
    assert dataset.kind == f"cifar-10-{kind}"
    assert np.array_equal(dataset.train.pixels, np.concatenate([made.pixels(i) for i in range(5)]))
    assert dataset.train.labels.tolist() == made.labels() * 5
    assert np.array_equal(dataset.eval.pixels, made.pixels(5))
    with pytest.raises(
        UsageError, match=f"--resize is for image files, got it with cifar-10-{kind}"
    ):
        made.load(path, "pad")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("data_batch_2", None, "data_batch_2 missing; all six"),
        ("data_batch_2", b"", "data_batch_2: the file is empty"),
        ("test_batch", b"garbage", "test_batch: not a readable CIFAR-10 batch"),
        (
            "test_batch",
            batch_pickle(made.pixels(5), [10] * 20),
            "image 0: label must be 0 to 9, got 10",
        ),
        (
            "test_batch",
            batch_pickle(made.pixels(5), made.labels(19)),
            "a list of 20 labels, got 19",
        ),
        ("data_batch_3", made.python2_pickle({b"labels": []}), "data_batch_3: has no 'data'"),
        (
            "data_batch_3",
            batch_pickle(made.pixels(2, 9), made.labels(9)),
            "number of images, got 20, 20, 9",
        ),
        ("batches.meta", made.python2_pickle({b"label_names": [b"cat"]}), "classes must be airpl"),
        ("test_batch.bin", b"\x01" * 3072, "3072 bytes are not a whole number of 3073-byte"),
        ("test_batch.bin", b"\0" * 3073 + b"\x0b" * 3073, "image 1: label must be 0 to 9, got 11"),
        ("data_batch_5.bin", b"\0" * 3073, "must hold the same number of images"),
        ("batches.meta.txt", b"automobile\nairplane\n", "the classes must be airplane, automob"),
    ],
)
def test_a_bad_batch_is_named(name, content, reason, tmp_path):
    make = made.binary_folder if name.endswith((".bin", ".txt")) else made.python_folder
    folder = make(tmp_path / "batches")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(SourceError, match=reason):
        made.load(folder)


def test_a_test_batch_that_was_cut_between_two_images_is_named(tmp_path):
    for name in made.BATCHES:
        with (tmp_path / f"{name}.bin").open("wb") as file:
            file.truncate((9_999 if name == "test_batch" else 10_000) * 3073)
    with pytest.raises(SourceError, match="must hold the same number of images, got .* 9999$"):
        made.load(tmp_path)
