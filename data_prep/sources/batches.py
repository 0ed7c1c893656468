"""Reads the six batches of a published archive, Python or binary, into one data set."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources.dataset import Dataset, Images
from data_prep.sources.member import Member

_FULL_BATCH = 10_000
_NUM_TRAINING_BATCHES = 5


class Format(Protocol):
    """The functions and constants that `python_archive` and `binary_archive` have in common."""

    @property
    def KIND(self) -> str:  # noqa: N802
        """The name that the manifest gives this kind of source."""

    def is_ours(self, name: str) -> bool:
        """Tells whether a file name, without folders, belongs to the archive."""

    def is_meta(self, name: str) -> bool:
        """Tells whether the file of that name holds the class names, not images."""

    def parse_batch(self, member: Member) -> Images:
        """Reads one batch."""

    def check_meta(self, member: Member) -> None:
        """Checks the file of class names.

        Raises:
          SourceError: the classes are not CIFAR-10's, in its order.
        """


def load(members: Iterable[Member], layout: Format) -> Dataset:
    """Reads all batches; ignores files with other names.

    Raises:
      SourceError: a batch is missing, duplicate or damaged, or has fewer images than the others.
    """
    batches: dict[str, Images] = {}
    for member in members:
        name = member.parts[-1]
        if not layout.is_ours(name):
            continue
        if layout.is_meta(name):
            layout.check_meta(member)
            continue
        stem = name.split(".")[0]
        if stem in batches:
            raise SourceError(f"{member.name}: there is more than one {name}; keep one")
        batches[stem] = layout.parse_batch(member)
    return _join(batches, layout.KIND)


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
