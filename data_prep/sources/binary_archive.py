"""The published binary archive: six files of label byte + 3,072 pixel bytes per image."""

import re

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources.dataset import Images
from data_prep.sources.members import Member

KIND = "cifar-10-binary"
MAX_BATCH_BYTES = 40 << 20  # the published ones take 31 MB

_META = "batches.meta.txt"
_NAMES = re.compile(r"data_batch_[1-5]\.bin|test_batch\.bin|batches\.meta\.txt")
_ROW = 1 + schema.IMAGE_BYTES


def is_ours(name: str) -> bool:
    """Tells whether a file's base name is one of the archive's."""
    return _NAMES.fullmatch(name) is not None


def is_meta(name: str) -> bool:
    """Tells whether the file names the classes instead of holding images."""
    return name == _META


def parse_batch(member: Member) -> Images:
    """Reads one batch.

    Raises:
      SourceError: not a whole number of images, or a label that is none.
    """
    data = member.read(MAX_BATCH_BYTES)
    if len(data) % _ROW:
        raise SourceError(
            f"{member.name}: truncated or no CIFAR-10 batch: {len(data)} bytes are not a whole "
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
    """Raises SourceError unless the classes are CIFAR-10's, in its order."""
    names = member.read(1 << 20).decode("ascii", "replace").split()
    if tuple(names) != schema.CLASS_NAMES:
        raise SourceError(
            f"{member.name}: the classes must be {', '.join(schema.CLASS_NAMES)}, "
            f"are {', '.join(names)[:200]}"
        )
