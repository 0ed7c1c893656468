"""The published Python archive: six pickled batches (cifar-10-batches-py)."""

import re
from typing import Any

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import unpickle
from data_prep.sources.dataset import Images, Pixels
from data_prep.sources.member import Member

KIND = "cifar-10-python"
MAX_BATCH_BYTES = 40 << 20  # A published batch takes 31 MB.

_META = "batches.meta"
_NAMES = re.compile(r"data_batch_[1-5]|test_batch|batches\.meta")


def is_ours(name: str) -> bool:
    """Tells whether a file name, without folders, belongs to the archive."""
    return _NAMES.fullmatch(name) is not None


def is_meta(name: str) -> bool:
    """Tells whether the file of that name holds the class names, not images."""
    return name == _META


def parse_batch(member: Member) -> Images:
    """Reads one batch.

    Raises:
      SourceError: the file is not a valid batch; the message says why.
    """
    batch = unpickle.load(member.read(MAX_BATCH_BYTES), member.name)
    for key in (b"data", b"labels"):
        if key not in batch:
            raise SourceError(f"{member.name}: has no {key.decode()!r}, as each batch must")
    pixels = unpickle.pixels(batch[b"data"], member.name)
    return Images(pixels, _labels(batch[b"labels"], len(pixels), member.name))


def check_meta(member: Member) -> None:
    """Checks the file of class names.

    Raises:
      SourceError: the classes are not CIFAR-10's, in its order.
    """
    meta = unpickle.load(member.read(1 << 20), member.name)
    expected = [name.encode() for name in schema.CLASS_NAMES]
    if meta.get(b"label_names") != expected:
        raise SourceError(
            f"{member.name}: the classes must be {', '.join(schema.CLASS_NAMES)}, "
            f"are {str(meta.get(b'label_names'))[:200]}"
        )


def _labels(values: Any, count: int, name: str) -> Pixels:
    if not isinstance(values, list) or len(values) != count:
        held = len(values) if isinstance(values, list) else type(values).__name__
        raise SourceError(f"{name}: {count} images need a list of {count} labels, got {held}")
    for row, value in enumerate(values):
        if type(value) is not int or not 0 <= value < schema.NUM_CLASSES:
            raise SourceError(
                f"{name}: image {row}: label must be 0 to {schema.NUM_CLASSES - 1}, got "
                f"{str(value)[:50]}"
            )
    return np.array(values, np.uint8)
