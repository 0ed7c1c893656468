import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from data_prep.errors import SourceError
from data_prep.sources import unpickle
from tests.data_prep import made


def test_a_published_batch_gives_its_pixels() -> None:
    batch = unpickle.load(made.batch_pickle(made.pixels(3), made.labels()), "data_batch_1")
    assert np.array_equal(unpickle.pixels(batch[b"data"], "data_batch_1"), made.pixels(3))
    assert batch[b"labels"] == made.labels()


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_would_run_a_command_is_refused_and_does_not(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    data = pickle.dumps({1: _Touch(target)}, protocol=2)
    with pytest.raises(SourceError, match="data_batch_1: .* asks for posix.system"):
        unpickle.load(data, "data_batch_1")
    assert not target.exists()


@pytest.mark.parametrize(
    "name",
    ["builtins\neval", "numpy\nload", "numpy.core.multiarray\nscalar", "copyreg\n__newobj__"],
)
def test_no_other_name_is_admitted(name: str) -> None:
    data = b"\x80\x02c" + name.encode() + b"\n."
    with pytest.raises(SourceError, match="which the published files do not contain"):
        unpickle.load(data, "batch")


@pytest.mark.parametrize(
    "data",
    [b"", b"not a pickle", b"\x80\x02", b"\x80\x02}(", b"\x80\x02]q\x00.", b"\x80\x02Pid\n."],
)
def test_what_is_no_pickled_dictionary_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(SourceError, match=r"\Abatch: [^\n]+\Z"):
        unpickle.load(data, "batch")


def _shared_tuples(depth: int) -> bytes:
    """A pickle of a dictionary whose key is a tuple of itself twice, `depth` times over."""
    return b"\x80\x02})q\x00" + b"h\x00h\x00\x86q\x00" * depth + b"Ns."


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        # A table of 64 million entries takes 1 GB.
        (b"\x80\x02}r\xff\xff\xff\x03.", "it numbers an object 67,108,863"),
        # Hashing this key takes 2**60 steps.
        (_shared_tuples(60), "it has more than 20 tuples"),
        (b"\x80\x02}" + b"0}" * 1_100_000 + b".", "it has more than 2,000,000 instructions"),
    ],
)
def test_a_pickle_that_would_take_much_memory_or_time_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=f"not a readable CIFAR-10 batch: {reason}"):
        unpickle.load(data, "batch")


def test_a_deeply_nested_shape_is_described_in_few_words() -> None:
    nested = b"]" * 100_000 + b"a" * 99_999
    array = made.array_opcodes((1, 3072), b"\0" * 3072)
    batch = unpickle.load(made.python2_pickle({b"data": made.Raw(array)}), "batch")
    state = list(batch[b"data"].state)
    state[1] = unpickle.load(b"\x80\x02}U\x00" + nested + b"s.", "batch")[b""]
    batch[b"data"].state = tuple(state)
    with pytest.raises(SourceError, match=r"has \[\[\[\[\[\[\[\.\.\.\]"):
        unpickle.pixels(batch[b"data"], "batch")


def test_a_truncated_batch_is_refused() -> None:
    data = made.batch_pickle(made.pixels(0), made.labels())
    for length in (10, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(SourceError, match="not a readable CIFAR-10 batch"):
            unpickle.load(data[:length], "batch")


@pytest.mark.parametrize(
    ("opcodes", "reason"),
    [
        (
            made.array_opcodes((2, 3072), b"\0" * 6143),
            "2 images need 6144 bytes, the file holds 6143",
        ),
        (made.array_opcodes((2, 1024), b"\0" * 2048), r"must have the shape \(images, 3072\)"),
        (made.array_opcodes((0, 3072), b""), r"has \(0, 3072\)"),
        (made.array_opcodes((6144,), b"\0" * 6144), r"must have the shape"),
        (made.array_opcodes((1, 3072), b"\0" * 3072, dtype=b"i1"), "must be uint8"),
        (made.array_opcodes((1, 3072), b"\0" * 3072, fortran=b"\x88"), "in C order"),
        # No memory is allocated for the terabytes of this shape.
        (made.array_opcodes((1 << 30, 3072), b"\0"), "the file holds 1"),
        (b"N", "must be a numpy array, is a NoneType"),
    ],
)
def test_an_array_of_another_kind_says_what_it_must_be(opcodes: bytes, reason: str) -> None:
    batch = unpickle.load(made.python2_pickle({b"data": made.Raw(opcodes)}), "batch")
    with pytest.raises(SourceError, match=reason):
        unpickle.pixels(batch[b"data"], "batch")
