"""Finds out what a source is, by the first file whose name tells."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from data_prep.errors import SourceError, UsageError
from data_prep.sources import batches, image_tree, kaggle, members, synthetic
from data_prep.sources.dataset import Dataset, Kind

# The first one that claims a file of the source has it.
KINDS: list[Kind] = [*batches.KINDS, kaggle.KAGGLE, image_tree.IMAGE_TREE]
# It claims any folder of images, so it has what no other kind claims.
_LAST = image_tree.CLASS_FOLDERS

# Where such flags apply.
_FOR = {
    "resize": "image files",
    "eval_fraction": "image folders without a test folder",
    "labels": "CIFAR-100",
}


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


def find(source: str, seed: int, synthetic_size: Optional[int] = None, **flags: Any) -> Source:
    """Identifies a source and computes its fingerprint.

    Args:
      source: a path, or the word `synthetic`.
      seed: seed of the synthetic set, and of the choice of the images for evaluation.
      synthetic_size: number of training images of the synthetic set; None: the default.
      flags: `resize`, one of `schema.RESIZES`, says how images of other sizes are brought to 32x32
        (None: they are refused), `eval_fraction` which share of image folders is for evaluation,
        `labels` which of CIFAR-100's two labels counts, `fine` or `coarse` (None: the default).

    Raises:
      SourceError: there is no such path, it cannot be read, or is none of the known kinds.
      UsageError: `synthetic_size` is out of range or given with a path, or another argument does
        not apply to the source.
    """
    if source == synthetic.KIND:
        size = synthetic.DEFAULT_SIZE if synthetic_size is None else synthetic_size
        least, most = synthetic.MIN_SIZE, synthetic.MAX_SIZE
        if not least <= size <= most:
            raise UsageError(f"--synthetic-size must be {least} to {most}, got {size}")
        _check_flags(flags, (), f"--source {source}")
        fingerprint = synthetic.fingerprint(size, seed)
        return Source(source, fingerprint, lambda: synthetic.load(size, seed))
    if synthetic_size is not None:
        raise UsageError(f"--synthetic-size is for --source {synthetic.KIND}, got it with {source}")
    path = Path(source)

    def load() -> Dataset:
        kind, given = _kind(path), {**flags, "seed": seed}
        _check_flags(flags, kind.takes, f"{kind.name}: {path}")
        further = {name: given.get(name) for name in kind.takes if name != "resize"}
        return kind.load(path, flags.get("resize"), **further)

    return Source(path.resolve().name, _fingerprint(path), load)


def _check_flags(flags: dict[str, Any], takes: tuple[str, ...], what: str) -> None:
    for name, value in flags.items():
        if value is not None and name not in takes:
            raise UsageError(f"--{name.replace('_', '-')} is for {_FOR[name]}, got it with {what}")


def _fingerprint(path: Path) -> str:
    if path.is_file():
        return members.file_sha256(path)
    kind, digest = _kind(path), hashlib.sha256()
    for member in members.walk(path):
        if kind.decides(member.parts):
            content = hashlib.sha256(member.read(kind.most_bytes)).hexdigest()
            digest.update(f"{member.name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _kind(path: Path) -> Kind:
    has_images = False
    for member in members.walk(path):
        has_images = has_images or _LAST.claims(member.parts)
        for kind in KINDS:
            if kind.claims(member.parts):
                return kind
    if has_images:
        return _LAST
    looks = ", nor ".join(kind.looks for kind in (*KINDS, _LAST))
    way_out = "an archive inside, such as train.7z, must be unpacked"
    raise SourceError(f"{path}: holds neither {looks}; {way_out}")
