"""The published binary archive: six files with a label byte and 3,072 pixel bytes per image."""

import re

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources.dataset import Images
from data_prep.sources.member import Member

KIND = "cifar-10-binary"
MAX_BATCH_BYTES = 40 << 20  # A published batch takes 31 MB.

_META = "batches.meta.txt"
_NAMES = re.compile(r"data_batch_[1-5]\.bin|test_batch\.bin|batches\.meta\.txt")
_ROW = 1 + schema.IMAGE_BYTES


def is_ours(name: str) -> bool:
    """Tells whether a file name, without folders, belongs to the archive."""
    return _NAMES.fullmatch(name) is not None


def is_meta(name: str) -> bool:
    """Tells whether the file of that name holds the class names, not images."""
    return name == _META


def parse_batch(member: Member) -> Images:
    """Reads one batch.

    Raises:
      SourceError: the file is not a whole number of images, or a label is above 9.
    """
    data = member.read(MAX_BATCH_BYTES)
    if len(data) % _ROW:
        raise SourceError(
            f"{member.name}: truncated or not a CIFAR-10 batch: {len(data)} bytes are not a whole "
            f"number of {_ROW}-byte images"
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, _ROW)
    wrong = np.flatnonzero(rows[:, 0] >= schema.NUM_CLASSES)
    if len(wrong):
        raise SourceError(
            f"{member.name}: image {wrong[0]}: label must be 0 to {schema.NUM_CLASSES - 1}, "
            f"got {rows[wrong[0], 0]}"
        )
    return Images(rows[:, 1:], rows[:, 0])


def check_meta(member: Member) -> None:
    """Checks the file of class names.

    Raises:
      SourceError: the classes are not CIFAR-10's, in its order.
    """
    names = member.read(1 << 20).decode("ascii", "replace").split()
    if tuple(names) != schema.CLASS_NAMES:
        raise SourceError(
            f"{member.name}: the classes must be {', '.join(schema.CLASS_NAMES)}, "
            f"are {', '.join(names)[:200]}"
        )
