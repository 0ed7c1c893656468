import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from data_prep.errors import SourceError
from data_prep.sources import unpickle
from tests.data_prep import made


def test_a_published_batch_gives_its_pixels():
    batch = unpickle.load(made.batch_pickle(made.pixels(3), made.labels()), "data_batch_1")
    assert np.array_equal(unpickle.pixels(batch[b"data"], "data_batch_1"), made.pixels(3))
    assert batch[b"labels"] == made.labels()


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


_EXCESS = "it has more than 1,000 instructions or 20 tuples, or numbers an object"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x80\x02cbuiltins\neval\n.", "which the published files do not contain"),
        (b"\x80\x02cnumpy\nload\n.", "which the published files do not contain"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\n.", "which the published files do not contain"),
        (b"", ""),
        (b"not a pickle", ""),
        (b"\x80\x02", ""),
        (b"\x80\x02}(", ""),
        (b"\x80\x02]q\x00.", "it holds a list, not a dictionary"),
        (b"\x80\x02Pid\n.", "persistent"),
        (b"\x80\x02}r\xff\xff\xff\x03.", _EXCESS),  # A table of 64 million entries takes 1 GB.
        # A key that is a tuple of itself twice, 60 times over; to hash it takes 2**60 steps.
        (b"\x80\x02})q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"Ns.", _EXCESS),
        (b"\x80\x02}" + b"0}" * 600 + b".", _EXCESS),
    ],
)
def test_what_is_no_published_dictionary_is_refused_in_one_line(data, reason, monkeypatch):
    monkeypatch.setattr(unpickle, "_MOST_INSTRUCTIONS", 1_000)
    line = rf"\Abatch: not a readable CIFAR-10 batch: [^\n]*{reason}[^\n]*\Z"
    with pytest.raises(SourceError, match=line):
        unpickle.load(data, "batch")


def test_a_truncated_batch_is_refused():
    data = made.batch_pickle(made.pixels(0), made.labels())
    for length in (10, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(SourceError, match="not a readable CIFAR-10 batch"):
            unpickle.load(data[:length], "batch")


def test_too_little_memory_is_not_a_fault_of_the_batch(monkeypatch):
    def lack(_: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(unpickle, "_refuse_excess", lack)
    with pytest.raises(MemoryError):
        unpickle.load(b"", "batch")


@pytest.mark.parametrize(
    "opcodes",
    [
        made.array_opcodes((2, 3072), b"\0" * 6143),
        made.array_opcodes((2, 1024), b"\0" * 2048),
        made.array_opcodes((0, 3072), b""),
        made.array_opcodes((6144,), b"\0" * 6144),
        made.array_opcodes((1, 3072), b"\0" * 3072, dtype=b"i1"),
        made.array_opcodes((1, 3072), b"\0" * 3072, fortran=b"\x88"),
        made.array_opcodes((1 << 30, 3072), b"\0"),  # It would take terabytes.
        b"N",
    ],
)
def test_an_array_of_another_kind_says_what_it_must_be(opcodes):
    batch = unpickle.load(made.python2_pickle({b"data": made.Raw(opcodes)}), "batch")
    with pytest.raises(
        SourceError, match=r"must be a whole numpy array of uint8 .* \(images, 3072"
    ):
        unpickle.pixels(batch[b"data"], "batch")
