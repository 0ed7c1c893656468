"""Describes a folder of records in its manifest.

The manifest is put in place after the records, so a folder with a manifest is complete.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from cifar10 import schema
from data_prep.errors import DamageError
from data_prep.tfrecord.write import Written


@dataclass(frozen=True)
class Origin:
    """The source of the records.

    Attributes:
      kind: kind of source, e.g. `cifar-10-python`.
      name: name of the source's file or folder, without its path.
      fingerprint: SHA-256 of the source, in hex (`detect.Source`).
    """

    kind: str
    name: str
    fingerprint: str


@dataclass(frozen=True)
class Options:
    """The options that decide the records, besides the source and the seed.

    Attributes:
      validation_size: number of training images to hold out; None: a tenth, or the source's own
        validation images.
      shards: number of files of the train split.
      resize: how images of other sizes were brought to 32x32, one of `schema.RESIZES`; None: there
        were none.
      eval_fraction: share of image folders that was held out for evaluation; None: the default, or
        the source's own test images.
      labels: which of CIFAR-100's labels, `fine` or `coarse`; None: the default, fine.
    """

    validation_size: Optional[int] = None
    shards: int = 1
    # Folders of older versions do not have these.
    resize: Optional[str] = None
    eval_fraction: Optional[float] = None
    labels: Optional[str] = None


@dataclass(frozen=True)
class Split:
    """The files of a split, and the number of their records."""

    records: int
    files: tuple[Written, ...]


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json; training reads it, so its keys must not change.

    Attributes:
      source: the source.
      class_names: names of the classes, in the order of the labels.
      seed: seed of the validation split and of the order of the records.
      options: the other options.
      splits: each split, in the order of `schema.SPLITS`.
      channel_mean: mean of each channel over the train split, in pixel values 0 to 255.
      channel_deviation: standard deviation of each channel over the train split, in pixel values.
    """

    source: Origin
    class_names: tuple[str, ...]
    seed: int
    options: Options
    splits: Mapping[str, Split]
    channel_mean: tuple[float, ...]
    channel_deviation: tuple[float, ...]

    @property
    def files(self) -> dict[str, Written]:
        """All files by name."""
        return {file.name: file for split in self.splits.values() for file in split.files}

    def to_json(self) -> str:
        """Returns the text of the file."""
        content = {"format_version": schema.FORMAT_VERSION, **asdict(self)}
        return json.dumps(content, indent=2) + "\n"


def read(folder: Path) -> Optional[Manifest]:
    """Reads the manifest of a folder; returns None if there is none.

    Raises:
      DamageError: the file cannot be read, or is not a manifest of this format version.
    """
    path = folder / schema.MANIFEST_NAME
    try:
        return _parse(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        fault = f"not a manifest of data_prep ({reason})"
        raise DamageError(f"{path}: {fault}; rebuild with --force") from error


def _parse(content: Any) -> Manifest:
    version = content["format_version"]
    if version != schema.FORMAT_VERSION:
        raise ValueError(f"format_version must be {schema.FORMAT_VERSION}, is {version!r}")
    class_names = tuple(str(name) for name in content["class_names"])
    if len(class_names) < 2:
        raise ValueError(f"{len(class_names)} class names")
    origin, options = Origin(**content["source"]), Options(**content["options"])
    splits = {name: _split(content["splits"][name], name) for name in schema.SPLITS}
    mean, deviation = (
        tuple(map(float, content[key])) for key in ("channel_mean", "channel_deviation")
    )
    return Manifest(origin, class_names, content["seed"], options, splits, mean, deviation)


def _split(split: Any, name: str) -> Split:
    files = tuple(
        Written(str(f["name"]), int(f["records"]), int(f["bytes"]), str(f["sha256"]))
        for f in split["files"]
    )
    if split["records"] != sum(file.records for file in files):
        raise ValueError(f"{name} counts {split['records']!r} records, its files do not")
    return Split(split["records"], files)
