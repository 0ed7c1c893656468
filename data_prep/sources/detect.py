"""Finds out what a path is, and loads it."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from data_prep.errors import SourceError, UsageError
from data_prep.sources import (
    batches,
    binary_archive,
    image_tree,
    members,
    python_archive,
    synthetic,
)
from data_prep.sources.dataset import Dataset, check_classes
from data_prep.sources.members import Member

SYNTHETIC = "synthetic"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """An input that has been looked at but not read: the name is a base name.

    `fingerprint` is a SHA-256 over all content that decides the images: an archive's bytes, the
    names and bytes of a folder's files, or the synthetic set's parameters. It is the same on
    every machine, and tells an edited file from an untouched one whatever its times say.
    """

    name: str
    fingerprint: str
    path: Optional[Path]
    size: int
    seed: int

    def load(self) -> Dataset:
        """Reads all images into memory.

        Raises:
          SourceError: the content is none of the known kinds, or damaged.
        """
        if self.path is None:
            return synthetic.load(self.size, self.seed)
        dataset = _load(self.path)
        check_classes(dataset)
        return dataset


def find(source: str, seed: int, synthetic_size: Optional[int] = None) -> Source:
    """Names and fingerprints `source`: a path, or the word `synthetic`.

    Raises:
      SourceError: no such path, or it cannot be read.
      UsageError: `synthetic_size` is out of range, or given with a path.
    """
    size = _synthetic_size(source, synthetic_size)
    if source == SYNTHETIC:
        return Source(SYNTHETIC, synthetic.fingerprint(size, seed), None, size, seed)
    path = Path(source).expanduser()
    return Source(path.resolve().name, _fingerprint(path), path, size, seed)


def _synthetic_size(source: str, size: Optional[int]) -> int:
    if size is None:
        return synthetic.DEFAULT_SIZE
    if source != SYNTHETIC:
        raise UsageError(f"--synthetic-size is for --source {SYNTHETIC}, got it with {source}")
    if not synthetic.MIN_SIZE <= size <= synthetic.MAX_SIZE:
        raise UsageError(
            f"--synthetic-size must be {synthetic.MIN_SIZE} to {synthetic.MAX_SIZE}, got {size}"
        )
    return size


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _fingerprint(path: Path) -> str:
    if path.is_file():
        try:
            return file_sha256(path)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
    digest = hashlib.sha256()
    for member in members.walk(path):
        if not _kind_of(member):
            continue
        content = hashlib.sha256(member.read(members.MAX_READ_BYTES)).hexdigest()
        digest.update(f"{member.name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _kind_of(member: Member) -> Optional[str]:
    name = member.parts[-1]
    if python_archive.is_ours(name):
        return python_archive.KIND
    if binary_archive.is_ours(name):
        return binary_archive.KIND
    return image_tree.KIND if image_tree.is_ours(member.parts) else None


def _load(path: Path) -> Dataset:
    """The first file with a telling name decides how the others are read."""
    walked = members.walk(path)
    for member in walked:
        kind = _kind_of(member)
        if kind is None:
            continue
        rest: Iterator[Member] = itertools.chain([member], walked)
        if kind == image_tree.KIND:
            return image_tree.load(rest)
        return batches.load(rest, python_archive if kind == python_archive.KIND else binary_archive)
    raise SourceError(
        f"{path}: holds neither data_batch_1 (CIFAR-10, Python), nor data_batch_1.bin (binary), "
        "nor train/CLASS/*.png|jpg and test/CLASS/*"
    )
