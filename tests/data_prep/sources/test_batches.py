"""The published batches, and which of their pickles are read."""

import json
import os
import pickle
from pathlib import Path
from typing import Optional

import numpy as np
import pytest

from data_prep import cli
from data_prep.errors import SourceError, UsageError
from data_prep.sources import members, unpickle
from data_prep.sources.dataset import check
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
        ("data_batch_2", None, "data_batch_2 missing; all of its"),
        ("data_batch_2", b"", "data_batch_2: the file is empty"),
        ("test_batch", b"garbage", "test_batch: not a readable CIFAR batch"),
        ("test_batch", batch_pickle(made.pixels(5), [10] * 20), "0: label must be 0 to 9, got 10"),
        ("test_batch", batch_pickle(made.pixels(5), [1] * 19), "20 images need 20 labels, got 19"),
        ("data_batch_3", batch_pickle(made.pixels(2, 9), [1] * 9), "of images, got 20, 20, 9"),
        ("batches.meta", made.python2_pickle({b"label_names": [b"cat"]}), "classes must be airpl"),
        ("test_batch.bin", b"\x01" * 3072, "3072 bytes are not a whole number of 3073-byte"),
        ("test_batch.bin", b"\0" * 3073 + b"\x0b" * 3073, "image 1: label must be 0 to 9, got 11"),
        ("data_batch_5.bin", b"\0" * 3073, "must hold the same number of images"),
        ("batches.meta.txt", b"automobile\nairplane\n", "the classes must be airplane, automob"),
    ],
)
def test_a_bad_batch_is_named(name, content, reason, tmp_path):
    make = made.binary_folder if name.endswith((".bin", ".txt")) else made.python_folder
    _refused_with(make(tmp_path / "batches") / name, content, reason)


def _refused_with(path: Path, content: Optional[bytes], reason: str) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=reason):
        made.load(path.parent)


@pytest.mark.parametrize("mode", [None, "w:gz"])
@pytest.mark.parametrize("form", ["python", "binary"])
def test_cifar_100_has_fine_and_coarse_labels(form, mode, tmp_path, monkeypatch):
    monkeypatch.setattr(members.Member.read, "__defaults__", (500 * 3072,))  # as 154 MB to 64
    path = made.packed(mode, made.cifar100_folder(tmp_path / f"cifar-100-{form}", form))
    fine, coarse = made.FINE_NAMES, made.COARSE_NAMES
    for labels, names in ((None, fine), ("fine", fine), ("coarse", coarse)):
        dataset = made.load(path, labels=labels)
        check(dataset)
        assert dataset.kind == f"cifar-100-{form}"
        assert dataset.class_names == tuple(names)
        each = 100 // len(names)
        for images, index, count in ((dataset.train, 0, 500), (dataset.eval, 1, 100)):
            assert np.array_equal(images.pixels, made.pixels(index, count))
            assert images.labels.tolist() == [row % 100 // each for row in range(count)]


@pytest.mark.parametrize(
    ("form", "name", "content", "reason"),
    [
        ("python", "meta", None, "cifar-100-python: meta missing; all of its files are needed"),
        ("python", "test", None, "cifar-100-python: test missing; all of its files are needed"),
        ("python", "meta", made.python2_pickle({b"fine_label_names": []}), "00 class names, got 0"),
        (
            "python",
            "test",
            made.python2_pickle({b"data": made.pixels(0, 2), b"fine_labels": [0, 100]}),
            "test: image 1: label must be 0 to 99, got 100",
        ),
        ("binary", "train.bin", b"0" * 3073, "train.bin: .* are not a whole number of 3074-byte"),
        ("binary", "fine_label_names.txt", b"apple\n" * 100, "must hold 100 class names"),
    ],
)
def test_a_bad_file_of_cifar_100_is_named(form, name, content, reason, tmp_path):
    _refused_with(made.cifar100_folder(tmp_path / "renamed", form) / name, content, reason)


def test_another_choice_of_labels_changes_the_records_of_cifar_100(tmp_path, capsys):
    source, out = made.cifar100_folder(tmp_path / "cifar-100-python"), tmp_path / "out"
    for flags, classes in (([], 100), (["--labels", "coarse"], 20)):
        assert cli.main(["--source", str(source), "--out", str(out), *flags]) == 0
        assert len(json.loads((out / "manifest.json").read_text())["class_names"]) == classes
    assert "the options changed" in capsys.readouterr().out
    made.python_folder(tmp_path / "ten")
    with pytest.raises(UsageError, match="--labels is for CIFAR-100, got it with cifar-10-python"):
        made.load(tmp_path / "ten", labels="fine")


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_would_run_a_command_is_refused_and_does_not(tmp_path):
    target = tmp_path / "ran"
    data = pickle.dumps({1: _Touch(target)}, protocol=2)
    with pytest.raises(SourceError, match="data_batch_1: .* asks for posix.system"):
        unpickle.load(data, "data_batch_1")
    assert not target.exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x02cbuiltins\neval\n.", "which the published files do not contain"),
        (b"\x80\x02cnumpy\nload\n.", "which the published files do not contain"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "it asks for os.system, which the published"),
        (b"", ""),
        (b"not a pickle", ""),
        (b"\x80\x02", ""),
        (b"\x80\x02}(", ""),
        (b"\x80\x02]q\x00.", "it holds a list, not a dictionary"),
        (b"\x80\x02Pid\n.", "has the instruction PERSID, which no"),
        (b"\x80\x02K\x01}b.", "state is not a dictionary"),
        (b"\x80\x02}\x88K\x01s.", "a key must be a string, got type bool"),
        (b"\x80\x02(}K\x01\x86\x86K\x01e.", ""),  # a stack that ends above its mark
        # A key that is a tuple of itself twice, 60 times over; to hash it takes 2**60 steps.
        (b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"}h\x00Ns.", "got type tuple"),
        (b"\x80\x04(" + b")\x94" + b"h\x00h\x00\x86q\x00" * 60 + b"\x91.", "instruction FROZENSET"),
        # A table of 4,000 million entries would take 32 GB.
        (b"\x80\x02}r\xff\xff\xff\xff.", "instruction LONG_BINPUT"),
        (b"\x80\x02" + b"}" * 1200 + b".", "it has more than 1,000 instructions"),
    ],
)
def test_what_is_no_published_dictionary_is_refused_in_one_line(data, reason, monkeypatch):
    monkeypatch.setattr(unpickle, "_MOST_INSTRUCTIONS", 1_000)
    line = rf"\Abatch: not a readable CIFAR batch: [^\n]*{reason}[^\n]*\Z"
    with pytest.raises(SourceError, match=line):
        unpickle.load(data, "batch")


@pytest.mark.parametrize(
    "opcodes",
    [
        made.array_opcodes((2, 3072), b"\0" * 6143),
        made.array_opcodes((2, 1024), b"\0" * 2048),
        made.array_opcodes((0, 3072), b""),
        made.array_opcodes((6144,), b"\0" * 6144),
        made.array_opcodes((1, 3072), b"\0" * 3072, dtype=b"i1"),
        made.array_opcodes((1 << 30, 3072), b"\0"),  # It would take terabytes.
        made.array_opcodes((1, 3072), b"\0" * 3072, dtype=b"O8"),
        b"N",
    ],
)
def test_an_array_of_another_kind_says_what_it_must_be(opcodes):
    batch = unpickle.load(made.python2_pickle({b"data": made.Raw(opcodes)}), "batch")
    with pytest.raises(
        SourceError, match=r"must be a whole numpy array of uint8 .* \(images, 3072\), got [^\n]+$"
    ):
        unpickle.pixels(batch["data"], "batch")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "kind",
    [
        list,
        np.array,
        lambda labels: np.array(labels, np.uint8),
        lambda labels: np.array(labels, ">i4"),
        lambda labels: [np.int64(label) for label in labels],
    ],
    ids=["list", "int64 array", "uint8 array", "big endian", "list of int64"],
)
def test_batches_that_python_3_saved_again_hold_the_same(kind, protocol, tmp_path):
    folder = made.python_folder(tmp_path / "batches")
    orders = (np.ascontiguousarray, np.asfortranarray)
    for index, name in enumerate(made.BATCHES):
        rows = orders[index % 2](made.pixels(index))
        batch = {"data": rows, "labels": kind(made.labels()), "filenames": ["a.png"] * 20}
        content = pickle.dumps(batch, protocol)
        if index == 3:  # as numpy 2 names its modules
            content = content.replace(b"numpy.core.", b"numpy._core.")
            content = content.replace(b"\x8c\x15numpy._core", b"\x8c\x16numpy._core")
            content = content.replace(b"\x8c\x12numpy._core", b"\x8c\x13numpy._core")
        (folder / name).write_bytes(content)
    dataset = made.load(folder)
    assert np.array_equal(dataset.train.pixels, np.concatenate([made.pixels(i) for i in range(5)]))
    assert dataset.train.labels.tolist() == made.labels() * 5


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        ({"labels": []}, "has no 'data', as each batch must; it holds 'labels'"),
        ({"data": np.zeros((20, 32, 32, 3), np.uint8)}, r"3072\), got uint8 \(20, 32, 32, 3\)"),
        ({"data": np.zeros((20, 3072))}, r"\(images, 3072\), got numpy's type 'f8'"),
        ({"data": made.pixels(0), "labels": np.zeros(20)}, "whole numbers, got numpy's type 'f8'"),
        ({"data": made.pixels(0), "labels": np.eye(20, dtype=int)}, r"got the shape \(20, 20\)"),
        ({"data": made.pixels(0), "labels": [np.float64(1)] * 20}, "got numpy's type 'f8'"),
        ({"data": made.pixels(0), "labels": (1,) * 20}, "array of whole numbers, got type tuple"),
        ({"data": made.pixels(0), "labels": ["cat"] * 20}, "label must be 0 to 9, got type str"),
        ({"data": made.pixels(0), "labels": [1 << 90] * 20}, "must be 0 to 9, got type int"),
    ],
)
def test_a_batch_of_another_content_gives_the_true_reason(batch, reason, tmp_path):
    folder = made.python_folder(tmp_path / "batches")
    (folder / "data_batch_1").write_bytes(pickle.dumps({"labels": made.labels(), **batch}))
    with pytest.raises(SourceError, match=rf"data_batch_1: .*{reason}"):
        made.load(folder)
