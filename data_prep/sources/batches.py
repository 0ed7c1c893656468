"""The published archives, Python and binary: six batches of labelled images each."""

import abc
import re
from pathlib import Path
from typing import Any, Optional

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError, UsageError
from data_prep.sources import members, unpickle
from data_prep.sources.dataset import Dataset, Images, Kind
from data_prep.tfrecord.write import Pixels

_FULL_BATCH = 10_000
_NAMES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_ROW = 1 + schema.IMAGE_BYTES  # of a binary batch


class _Batches(Kind):
    """A form in which the batches are published.

    Attributes:
      batch: matches the name of a batch.
      meta: the name of the file with the class names.
    """

    batch: "re.Pattern[str]"
    meta: str

    @abc.abstractmethod
    def parse(self, member: members.Member) -> Images:
        """Reads a batch."""

    def claims(self, parts: tuple[str, ...]) -> bool:
        return parts[-1] == self.meta or self.batch.fullmatch(parts[-1]) is not None

    def load(self, path: Path, resize: Optional[str]) -> Dataset:
        if resize is not None:
            raise UsageError(f"--resize is for image files, got it with {self.name}: {path}")
        batches: dict[str, Images] = {}
        for member in members.walk(path):
            name = member.parts[-1]
            if name == self.meta:
                check_meta(member)
            elif self.claims(member.parts):
                stem = name.split(".")[0]
                if stem in batches:
                    raise SourceError(f"{member.name}: there is more than one {name}; keep one")
                batches[stem] = self.parse(member)
        return _join(batches, self.name)


def check_meta(member: members.Member) -> None:
    """Checks the file of class names, pickled or not.

    Raises:
      SourceError: the classes are not CIFAR-10's, in its order.
    """
    content, place = member.read(), 0
    for name in schema.CLASS_NAMES:
        place = content.find(name.encode(), place)
        if place < 0:
            raise SourceError(
                f"{member.name}: the classes must be {', '.join(schema.CLASS_NAMES)}, in this order"
            )


class _Python(_Batches):
    name = "cifar-10-python"
    looks = "data_batch_1 (CIFAR-10, Python)"
    batch = re.compile(r"data_batch_[1-5]|test_batch")
    meta = "batches.meta"

    def parse(self, member: members.Member) -> Images:
        batch = unpickle.load(member.read(), member.name)
        for key in ("data", "labels"):
            if key not in batch:
                held = ", ".join(map(repr, batch))[:100] or "nothing"
                raise SourceError(
                    f"{member.name}: has no {key!r}, as each batch must; it holds {held}"
                )
        pixels = unpickle.pixels(batch["data"], member.name)
        labels = unpickle.numbers(batch["labels"], member.name)
        return Images(pixels, _labels(labels, len(pixels), member.name))


class _Binary(_Batches):
    name = "cifar-10-binary"
    looks = "data_batch_1.bin (binary)"
    batch = re.compile(r"(data_batch_[1-5]|test_batch)\.bin")
    meta = "batches.meta.txt"

    def parse(self, member: members.Member) -> Images:
        data = member.read()
        if len(data) % _ROW:
            raise SourceError(
                f"{member.name}: truncated or not a CIFAR-10 batch: {len(data)} bytes are not a "
                f"whole number of {_ROW}-byte images"
            )
        rows = np.frombuffer(data, np.uint8).reshape(-1, _ROW)
        return Images(rows[:, 1:], _labels(rows[:, 0].tolist(), len(rows), member.name))


PYTHON, BINARY = _Python(), _Binary()


def _labels(values: list[Any], count: int, name: str) -> Pixels:
    if len(values) != count:
        raise SourceError(f"{name}: {count} images need {count} labels, got {len(values)}")
    for row, value in enumerate(values):
        if type(value) is not int or not 0 <= value < schema.NUM_CLASSES:
            raise SourceError(
                f"{name}: image {row}: label must be 0 to {schema.NUM_CLASSES - 1}, "
                f"got {_named(value)}"
            )
    return np.array(values, np.uint8)


def _named(value: Any) -> str:
    """Returns a number, or the type of what is none or too long to print."""
    is_short = type(value) is int and value.bit_length() <= 64
    return str(value) if is_short else f"type {type(value).__name__}"


def _join(batches: dict[str, Images], kind: str) -> Dataset:
    missing = [name for name in _NAMES if name not in batches]
    if missing:
        raise SourceError(f"{kind}: {', '.join(missing)} missing; all six batches are needed")
    sizes = [len(batches[name]) for name in _NAMES]
    # A file that was cut between two images is valid by itself: compare the sizes.
    if len(set(sizes[:5])) > 1 or sizes[0] == _FULL_BATCH != sizes[5]:
        raise SourceError(
            f"{kind}: the batches must hold the same number of images, got "
            + ", ".join(map(str, sizes))
        )
    labels = np.concatenate([batches[name].labels for name in _NAMES[:5]])
    pixels = np.empty((len(labels), schema.IMAGE_BYTES), np.uint8)
    for first, name in zip(range(0, len(labels), sizes[0]), _NAMES[:5]):
        # Frees each batch once it is copied: memory stays below twice the set.
        pixels[first : first + sizes[0]] = batches.pop(name).pixels
    return Dataset(kind, schema.CLASS_NAMES, Images(pixels, labels), batches["test_batch"])
