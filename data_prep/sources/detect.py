"""Finds out what a source is, by the first file whose name tells."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from data_prep.errors import SourceError, UsageError
from data_prep.sources import batches, image_tree, kaggle, members, synthetic
from data_prep.sources.dataset import Dataset, Kind

# The first one that claims a file of the source has it.
KINDS: list[Kind] = [batches.PYTHON, batches.BINARY, kaggle.KAGGLE, image_tree.IMAGE_TREE]


@dataclass(frozen=True)
class Source:
    """An input that has been identified but not loaded.

    The fingerprint covers all content that decides the images: the bytes of an archive, the names
    and contents of the files of a folder, or the parameters of the synthetic set. It is the same on
    every machine, and changes with the content, whatever the files' times are.

    Attributes:
      name: name of the file or folder, without its path; `synthetic` for the synthetic set.
      fingerprint: SHA-256, in hex.
      load: reads all images into memory; raises SourceError or UsageError.
    """

    name: str
    fingerprint: str
    load: Callable[[], Dataset]


def find(
    source: str, seed: int, synthetic_size: Optional[int] = None, resize: Optional[str] = None
) -> Source:
    """Identifies a source and computes its fingerprint.

    Args:
      source: a path, or the word `synthetic`.
      seed: seed of the synthetic set.
      synthetic_size: number of training images of the synthetic set; None: the default.
      resize: how images of other sizes are brought to 32x32, one of `schema.RESIZES`; None: they
        are refused.

    Raises:
      SourceError: there is no such path, it cannot be read, or is none of the known kinds.
      UsageError: `synthetic_size` is out of range or given with a path, or `resize` without one.
    """
    if source == synthetic.KIND:
        size = synthetic.DEFAULT_SIZE if synthetic_size is None else synthetic_size
        least, most = synthetic.MIN_SIZE, synthetic.MAX_SIZE
        if not least <= size <= most:
            raise UsageError(f"--synthetic-size must be {least} to {most}, got {size}")
        if resize is not None:
            raise UsageError(f"--resize is for image files, got it with --source {source}")
        fingerprint = synthetic.fingerprint(size, seed)
        return Source(source, fingerprint, lambda: synthetic.load(size, seed))
    if synthetic_size is not None:
        raise UsageError(f"--synthetic-size is for --source {synthetic.KIND}, got it with {source}")
    path = Path(source)
    return Source(path.resolve().name, _fingerprint(path), lambda: _kind(path).load(path, resize))


def _fingerprint(path: Path) -> str:
    if path.is_file():
        return members.file_sha256(path)
    kind, digest = _kind(path), hashlib.sha256()
    for member in members.walk(path):
        if kind.decides(member.parts):
            content = hashlib.sha256(member.read()).hexdigest()
            digest.update(f"{member.name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _kind(path: Path) -> Kind:
    for member in members.walk(path):
        for kind in KINDS:
            if kind.claims(member.parts):
                return kind
    raise SourceError(
        f"{path}: holds neither {', nor '.join(kind.looks for kind in KINDS)}; an archive inside, "
        "such as train.7z, must be unpacked"
    )
