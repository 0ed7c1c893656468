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
    image_tree,
    kaggle,
    members,
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
    has_table = False
    for member in members.walk(path, of_any_size):
        has_table |= member.parts[-1] == kaggle.LABELS
        if has_table and kaggle.is_unlabelled(member.parts):
            continue
        # A misplaced image ends a conversion, so it counts, too.
        if not _kind_of(member) and not image_tree.is_misplaced(member.parts):
            continue
        content = hashlib.sha256(member.read(MAX_READ_BYTES)).hexdigest()
        digest.update(f"{member.name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _kind_of(member: Member) -> Optional[str]:
    name = member.parts[-1]
    if name == kaggle.LABELS:
        return kaggle.KIND
    for layout in (batches.PYTHON, batches.BINARY):
        if layout.has(name):
            return layout.kind
    return image_tree.KIND if image_tree.is_ours(member.parts) else None


def _load(path: Path, resize: Optional[str]) -> Dataset:
    """Loads a path; the first file with a known name decides how all files are read."""
    of_any_size = resize is not None
    left_out = 0

    def counted() -> Iterator[Member]:
        nonlocal left_out
        for member in members.walk(path, of_any_size):
            left_out += image_tree.is_left_out(member.parts)
            yield member

    misplaced: Optional[Member] = None  # The first one; its content is not read.
    table: Optional[tuple[str, bytes]] = None
    walked = counted()
    for member in walked:
        kind = _kind_of(member)
        if kind == kaggle.KIND:
            table = member.name, member.read(MAX_READ_BYTES)
        elif kind is None:
            misplaced = misplaced or (member if image_tree.is_misplaced(member.parts) else None)
        elif kind != image_tree.KIND:
            if of_any_size:
                raise _no_images_to_resize(kind, path)
            layout = batches.PYTHON if kind == batches.PYTHON.kind else batches.BINARY
            return layout.load(itertools.chain([member], walked))
        elif misplaced:
            break
        else:
            dataset = image_tree.load(itertools.chain([member], walked), resize)
            note = f"Left out, since they are in no folder of a split: {left_out:,} image files."
            return replace(dataset, note=note if left_out else "")
        if table and misplaced:  # Images in train/, not in train/CLASS/, and their labels.
            return kaggle.load(members.walk(path, of_any_size), *table, resize)
    if misplaced:
        raise image_tree.misplaced(misplaced)
    raise SourceError(
        f"{path}: holds neither data_batch_1 (CIFAR-10, Python), nor data_batch_1.bin (binary), "
        "nor train/CLASS/* and test/CLASS/* with image files, nor Kaggle's train/* with "
        "trainLabels.csv; an archive inside, such as train.7z, must be unpacked"
    )
