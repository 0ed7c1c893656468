"""The published archives, Python and binary: six batches of labelled images each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import unpickle
from data_prep.sources.dataset import Dataset, Images, Pixels
from data_prep.sources.member import Member

MAX_BATCH_BYTES = 40 << 20  # A published batch takes 31 MB.
_MAX_META_BYTES = 1 << 20
_FULL_BATCH = 10_000
_NUM_TRAINING_BATCHES = 5
_ROW = 1 + schema.IMAGE_BYTES  # of a binary batch


@dataclass(frozen=True)
class Layout:
    """A form in which the batches are published.

    Attributes:
      kind: the name that the manifest gives this kind of source.
      batch: matches the name of a batch.
      meta: the name of the file with the class names.
      parse_batch: reads a batch.
      read_classes: reads the file with the class names.
    """

    kind: str
    batch: re.Pattern[str]
    meta: str
    parse_batch: Callable[[Member], Images]
    read_classes: Callable[[Member], list[str]]

    def has(self, name: str) -> bool:
        """Tells whether a file name, without folders, belongs to the archive."""
        return name == self.meta or self.batch.fullmatch(name) is not None

    def load(self, members: Iterable[Member]) -> Dataset:
        """Reads all batches; ignores files with other names.

        Raises:
          SourceError: a batch is missing, duplicate or damaged, or has fewer images than the
            others; or the classes are not CIFAR-10's, in its order.
        """
        batches: dict[str, Images] = {}
        for member in members:
            name = member.parts[-1]
            if name == self.meta:
                self.check_meta(member)
            elif self.has(name):
                stem = name.split(".")[0]
                if stem in batches:
                    raise SourceError(f"{member.name}: there is more than one {name}; keep one")
                batches[stem] = self.parse_batch(member)
        return _join(batches, self.kind)

    def check_meta(self, member: Member) -> None:
        """Checks the file of class names.

        Raises:
          SourceError: the classes are not CIFAR-10's, in its order.
        """
        names = self.read_classes(member)
        if tuple(names) != schema.CLASS_NAMES:
            raise SourceError(
                f"{member.name}: the classes must be {', '.join(schema.CLASS_NAMES)}, "
                f"are {', '.join(names)[:200]}"
            )


def _parse_pickle(member: Member) -> Images:
    batch = unpickle.load(member.read(MAX_BATCH_BYTES), member.name)
    for key in (b"data", b"labels"):
        if key not in batch:
            raise SourceError(f"{member.name}: has no {key.decode()!r}, as each batch must")
    pixels = unpickle.pixels(batch[b"data"], member.name)
    return Images(pixels, _labels(batch[b"labels"], len(pixels), member.name))


def _labels(values: Any, count: int, name: str) -> Pixels:
    if not isinstance(values, list) or len(values) != count:
        held = len(values) if isinstance(values, list) else type(values).__name__
        raise SourceError(f"{name}: {count} images need a list of {count} labels, got {held}")
    for row, value in enumerate(values):
        if type(value) is not int or not 0 <= value < schema.NUM_CLASSES:
            raise _wrong_label(name, row, str(value)[:50])
    return np.array(values, np.uint8)


def _wrong_label(name: str, row: object, value: object) -> SourceError:
    return SourceError(
        f"{name}: image {row}: label must be 0 to {schema.NUM_CLASSES - 1}, got {value}"
    )


def _read_pickled_classes(member: Member) -> list[str]:
    names = unpickle.load(member.read(_MAX_META_BYTES), member.name).get(b"label_names")
    return [
        one.decode("ascii", "replace") if isinstance(one, bytes) else str(one)
        for one in (names if isinstance(names, list) else [names])
    ]


def _parse_rows(member: Member) -> Images:
    data = member.read(MAX_BATCH_BYTES)
    if len(data) % _ROW:
        raise SourceError(
            f"{member.name}: truncated or not a CIFAR-10 batch: {len(data)} bytes are not a whole "
            f"number of {_ROW}-byte images"
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, _ROW)
    wrong = np.flatnonzero(rows[:, 0] >= schema.NUM_CLASSES)
    if len(wrong):
        raise _wrong_label(member.name, wrong[0], rows[wrong[0], 0])
    return Images(rows[:, 1:], rows[:, 0])


def _read_lines(member: Member) -> list[str]:
    return member.read(_MAX_META_BYTES).decode("ascii", "replace").split()


PYTHON = Layout(
    "cifar-10-python",
    re.compile(r"data_batch_[1-5]|test_batch"),
    "batches.meta",
    _parse_pickle,
    _read_pickled_classes,
)
BINARY = Layout(
    "cifar-10-binary",
    re.compile(r"(data_batch_[1-5]|test_batch)\.bin"),
    "batches.meta.txt",
    _parse_rows,
    _read_lines,
)


def _join(batches: dict[str, Images], kind: str) -> Dataset:
    training = [f"data_batch_{i}" for i in range(1, _NUM_TRAINING_BATCHES + 1)]
    missing = [name for name in [*training, "test_batch"] if name not in batches]
    if missing:
        raise SourceError(f"{kind}: {', '.join(missing)} missing; all six batches are needed")
    sizes = {name: len(batches[name]) for name in training}
    # A file that was cut between two images is valid by itself: compare the sizes.
    if len(set(sizes.values())) > 1:
        raise SourceError(
            f"{kind}: the five training batches must hold the same number of images, got "
            + ", ".join(str(size) for size in sizes.values())
        )
    if sizes[training[0]] == _FULL_BATCH != len(batches["test_batch"]):
        raise SourceError(
            f"{kind}: test_batch must hold {_FULL_BATCH} images as the others do, "
            f"holds {len(batches['test_batch'])}"
        )
    parts = [batches.pop(name) for name in training]
    labels = np.concatenate([part.labels for part in parts])
    pixels = np.empty((len(labels), schema.IMAGE_BYTES), np.uint8)
    first = 0
    while parts:  # Frees each part once it is copied: memory stays below twice the set.
        part = parts.pop(0)
        pixels[first : first + len(part)] = part.pixels
        first += len(part)
    return Dataset(kind, schema.CLASS_NAMES, Images(pixels, labels), batches["test_batch"])
