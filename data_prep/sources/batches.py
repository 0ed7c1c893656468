"""The published archives of CIFAR-10 and CIFAR-100, Python and binary: files of labelled images."""

from pathlib import Path
from typing import Any, Optional

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import members, unpickle
from data_prep.sources.dataset import Dataset, Images, Kind
from data_prep.tfrecord.write import Pixels

FINE, COARSE = "fine", "coarse"
_COUNTS = {FINE: 100, COARSE: 20}  # classes of CIFAR-100
_FULL, _FULL_TEST = schema.NUM_TRAINING_IMAGES, 10_000


class _Python(Kind):
    """A form in which a set is published, and CIFAR-10 in Python's.

    Attributes:
      files: the names of the files of images; the last one has those for evaluation.
      meta: the name of the file with the class names.
    """

    files: tuple[str, ...] = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
    meta = "batches.meta"
    name = "cifar-10-python"
    looks = "data_batch_1 (CIFAR-10, Python)"
    takes: tuple[str, ...] = ()

    def class_names(self, member: members.Member, labels: Optional[str]) -> tuple[str, ...]:
        """Returns the class names in the file `meta`."""
        check_meta(member)
        return schema.CLASS_NAMES

    def claims(self, parts: tuple[str, ...]) -> bool:
        return parts[-1] in (self.meta, *self.files)

    def load(self, path: Path, resize: Optional[str], labels: Optional[str] = None) -> Dataset:
        names: tuple[str, ...] = () if self.takes else schema.CLASS_NAMES  # CIFAR-10's are known.
        labels = (labels or FINE) if self.takes else None
        batches: dict[str, Images] = {}
        for member in members.walk(path):
            name = member.parts[-1]
            if name == self.meta.format(labels):
                names = self.class_names(member, labels)
            elif name in self.files and self.claims(member.parts):
                if name in batches:
                    raise SourceError(f"{member.name}: there is more than one {name}; keep one")
                batches[name] = self.parse(member, labels)
        needed = self.files if names else (*self.files, self.meta.format(labels))
        missing = ", ".join(name for name in needed if name not in batches)
        if missing:
            raise SourceError(f"{self.name}: {missing} missing; all of its files are needed")
        return _join(self.name, names, [batches.pop(name) for name in self.files])

    def parse(self, member: members.Member, labels: Optional[str] = None) -> Images:
        """Reads a file of images; `labels` says which of CIFAR-100's."""
        batch = unpickle.load(member.read(self.most_bytes), member.name)
        key = f"{labels}_labels" if labels else "labels"
        for needed in ("data", key):
            if needed not in batch:
                holds = "it holds " + (", ".join(map(repr, batch))[:100] or "nothing")
                raise SourceError(f"{member.name}: has no {needed!r}, as each batch must; {holds}")
        pixels = unpickle.pixels(batch["data"], member.name)
        values = unpickle.numbers(batch[key], member.name)
        return Images(pixels, _labels(values, len(pixels), member.name, labels))


def check_meta(member: members.Member) -> None:
    """Checks CIFAR-10's file of class names, pickled or not.

    Raises:
      SourceError: the classes are not CIFAR-10's, in its order.
    """
    content, position = member.read(), 0
    for name in schema.CLASS_NAMES:
        position = content.find(name.encode(), position)
        if position < 0:
            rule = f"the classes must be {', '.join(schema.CLASS_NAMES)}, in this order"
            raise SourceError(f"{member.name}: {rule}")


class _Binary(_Python):
    name = "cifar-10-binary"
    looks = "data_batch_1.bin (binary)"
    files = tuple(f"{name}.bin" for name in _Python.files)
    meta = "batches.meta.txt"

    def parse(self, member: members.Member, labels: Optional[str] = None) -> Images:
        data, columns = member.read(self.most_bytes), 2 if labels else 1
        row = columns + schema.IMAGE_BYTES
        if len(data) % row:
            size = f"{len(data)} bytes are not a whole number of {row}-byte images"
            raise SourceError(f"{member.name}: truncated or not a CIFAR batch: {size}")
        rows = np.frombuffer(data, np.uint8).reshape(-1, row)
        values = rows[:, 1 if labels == FINE else 0].tolist()
        return Images(rows[:, columns:], _labels(values, len(rows), member.name, labels))


class _Python100(_Python):
    name = "cifar-100-python"
    looks = "cifar-100-python/train"
    takes = ("labels",)
    most_bytes = 4 * members.MAX_READ_BYTES  # All training images are in one file.
    files = ("train", "test")
    meta = "meta"

    def claims(self, parts: tuple[str, ...]) -> bool:
        # Files of such names may be anything elsewhere.
        is_there = len(parts) == 1 or parts[-2].startswith("cifar-100")
        return is_there and parts[-1] in self.files

    def decides(self, parts: tuple[str, ...]) -> bool:
        return self.claims(parts) or parts[-1] in (self.meta.format(name) for name in _COUNTS)

    def class_names(self, member: members.Member, labels: Optional[str]) -> tuple[str, ...]:
        names = self.read_names(member, labels)
        count = _COUNTS[labels or FINE]
        if len(names) != count or len({*names}) != count:
            raise SourceError(f"{member.name}: must hold {count} class names, got {len(names)}")
        return tuple(names)

    def read_names(self, member: members.Member, labels: Optional[str]) -> list[str]:
        """Reads the file of class names."""
        found = unpickle.load(member.read(), member.name).get(f"{labels}_label_names")
        entries = found if isinstance(found, list) else []
        return [e.decode("utf-8", "replace") if isinstance(e, bytes) else str(e) for e in entries]


class _Binary100(_Python100):
    name = "cifar-100-binary"
    looks = "cifar-100-binary/train.bin"
    files = ("train.bin", "test.bin")
    meta = "{}_label_names.txt"
    parse = _Binary.parse

    def read_names(self, member: members.Member, labels: Optional[str]) -> list[str]:
        return member.read().decode("utf-8", "replace").split()


KINDS = (_Python(), _Binary(), _Python100(), _Binary100())


def _labels(values: list[Any], count: int, name: str, labels: Optional[str]) -> Pixels:
    if len(values) != count:
        raise SourceError(f"{name}: {count} images need {count} labels, got {len(values)}")
    classes = _COUNTS[labels] if labels else schema.NUM_CLASSES
    for row, value in enumerate(values):
        if type(value) is not int or not 0 <= value < classes:
            is_short = type(value) is int and value.bit_length() <= 64
            got = value if is_short else f"type {type(value).__name__}"
            raise SourceError(f"{name}: image {row}: label must be 0 to {classes - 1}, got {got}")
    return np.array(values, np.uint8)


def _join(kind: str, names: tuple[str, ...], batches: list[Images]) -> Dataset:
    """Joins the files of training images; the last of `batches` is for evaluation."""
    test, sizes = batches.pop(), [len(batch) for batch in batches]
    # A file that was cut between two images is valid by itself: compare the sizes.
    if len({*sizes}) > 1 or sum(sizes) == _FULL and len(test) != _FULL_TEST:
        got = ", ".join(map(str, [*sizes, len(test)]))
        raise SourceError(f"{kind}: the batches must hold the same number of images, got {got}")
    labels = np.concatenate([batch.labels for batch in batches])
    pixels = np.empty((len(labels), schema.IMAGE_BYTES), np.uint8)
    for first in range(0, len(labels), sizes[0]):
        # Frees each batch once it is copied: memory stays below twice the set.
        pixels[first : first + sizes[0]] = batches.pop(0).pixels
    return Dataset(kind, names, Images(pixels, labels), test)
