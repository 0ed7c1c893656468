"""Detects the kind of a source and loads it."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from data_prep.sources.member import MAX_READ_BYTES, Member

SYNTHETIC = "synthetic"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Source:
    """An input that has been identified but not loaded.

    The fingerprint covers all content that decides the images: the bytes of an archive, the names
    and contents of the files of a folder, or the parameters of the synthetic set. It is the same on
    every machine, and changes with the content, whatever the files' times are.

    Attributes:
      name: name of the file or folder, without its path; `synthetic` for the synthetic set.
      fingerprint: SHA-256, in hex.
      path: path of the source; None for the synthetic set.
      size: number of training images of the synthetic set.
      seed: seed of the synthetic set.
      resize: how images of other sizes are brought to 32x32; None: they are refused.
    """

    name: str
    fingerprint: str
    path: Optional[Path]
    size: int
    seed: int
    resize: Optional[str] = None

    def load(self) -> Dataset:
        """Reads all images into memory.

        Raises:
          SourceError: the content is damaged, or is none of the known kinds.
          UsageError: images are to be resized, but the source is an archive of CIFAR-10.
        """
        if self.path is None:
            return synthetic.load(self.size, self.seed)
        dataset = _load(self.path, self.resize)
        check_classes(dataset)
        return dataset


def find(
    source: str,
    seed: int,
    synthetic_size: Optional[int] = None,
    resize: Optional[str] = None,
) -> Source:
    """Identifies a source and computes its fingerprint.

    Args:
      source: a path, or the word `synthetic`.
      seed: seed of the synthetic set.
      synthetic_size: number of training images of the synthetic set; None: the default.
      resize: how images of other sizes are brought to 32x32, one of `schema.RESIZES`; None: they
        are refused.

    Raises:
      SourceError: there is no such path, or it cannot be read.
      UsageError: `synthetic_size` is out of range or given with a path, or `resize` without one.
    """
    size = _synthetic_size(source, synthetic_size)
    if source == SYNTHETIC:
        if resize is not None:
            raise _no_images_to_resize(SYNTHETIC, source)
        return Source(SYNTHETIC, synthetic.fingerprint(size, seed), None, size, seed)
    path = Path(source)
    fingerprint = _fingerprint(path, resize is not None)
    return Source(path.resolve().name, fingerprint, path, size, seed, resize)


def _no_images_to_resize(kind: str, source: object) -> UsageError:
    return UsageError(
        f"--resize is for image files, but {source} is {kind}, whose images have 32x32 pixels; "
        "leave it out"
    )


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
    """Returns the SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _fingerprint(path: Path, of_any_size: bool) -> str:
    if path.is_file():
        try:
            return file_sha256(path)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
    digest = hashlib.sha256()
    for member in members.walk(path, of_any_size):
        # A misplaced image ends a conversion, so it counts, too.
        if not _kind_of(member) and not image_tree.is_misplaced(member.parts):
            continue
        content = hashlib.sha256(member.read(MAX_READ_BYTES)).hexdigest()
        digest.update(f"{member.name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _kind_of(member: Member) -> Optional[str]:
    name = member.parts[-1]
    if python_archive.is_ours(name):
        return python_archive.KIND
    if binary_archive.is_ours(name):
        return binary_archive.KIND
    return image_tree.KIND if image_tree.is_ours(member.parts) else None


def _load(path: Path, resize: Optional[str]) -> Dataset:
    """Loads a path; the first file with a known name decides how all files are read."""
    left_out = _LeftOut()
    walked = left_out.counted(members.walk(path, resize is not None))
    misplaced: list[Member] = []  # The first one; its content is not read.
    for member in walked:
        kind = _kind_of(member)
        if kind is None:
            if not misplaced and image_tree.is_misplaced(member.parts):
                misplaced.append(member)
            continue
        if kind == image_tree.KIND and misplaced:
            break
        rest: Iterator[Member] = itertools.chain([member], walked)
        if kind == image_tree.KIND:
            dataset = image_tree.load(rest, resize)
            return replace(dataset, left_out=left_out.images)
        if resize is not None:
            raise _no_images_to_resize(kind, path)
        return batches.load(rest, python_archive if kind == python_archive.KIND else binary_archive)
    if misplaced:
        raise image_tree.misplaced(misplaced[0])
    raise SourceError(
        f"{path}: holds neither data_batch_1 (CIFAR-10, Python), nor data_batch_1.bin (binary), "
        "nor train/CLASS/* and test/CLASS/* with image files"
    )


class _LeftOut:
    """Counts the images that are in no folder of a split.

    Attributes:
      images: their number.
    """

    def __init__(self) -> None:
        self.images = 0

    def counted(self, walked: Iterator[Member]) -> Iterator[Member]:
        for member in walked:
            self.images += image_tree.is_left_out(member.parts)
            yield member
