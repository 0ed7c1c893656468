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
class Options:
    """The options that decide the records, besides the source.

    Attributes:
      validation_size: number of training images to hold out; None: a tenth, or the source's own
        validation images.
      shards: number of files of the train split.
      seed: seed of the validation split and of the order of the records.
      resize: how images of other sizes were brought to 32x32, one of `schema.RESIZES`; None: there
        were none.
    """

    validation_size: Optional[int] = None
    shards: int = 1
    seed: int = 0
    resize: Optional[str] = None


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json.

    Attributes:
      kind: kind of source, e.g. `cifar-10-python`.
      name: name of the source's file or folder, without its path.
      fingerprint: SHA-256 of the source, in hex (`detect.Source`).
      class_names: names of the ten classes, in the order of the labels.
      options: options of the records.
      splits: split -> its files.
      channel_mean: mean of each channel over the train split, in pixel values 0 to 255.
      channel_deviation: standard deviation of each channel over the train split, in pixel values.
    """

    kind: str
    name: str
    fingerprint: str
    class_names: tuple[str, ...]
    options: Options
    splits: Mapping[str, tuple[Written, ...]]
    channel_mean: tuple[float, ...]
    channel_deviation: tuple[float, ...]

    def records(self, split: str) -> int:
        """Returns the number of records of a split."""
        return sum(file.records for file in self.splits[split])

    def files(self) -> list[Written]:
        """Returns all files, in the order of the splits."""
        return [file for split in schema.SPLITS for file in self.splits[split]]

    def to_json(self) -> str:
        """Returns the text of the file; training reads it, so its keys must not change."""
        options = asdict(self.options)
        content = {
            "format_version": schema.FORMAT_VERSION,
            "source": {"kind": self.kind, "name": self.name, "fingerprint": self.fingerprint},
            "class_names": list(self.class_names),
            "seed": options.pop("seed"),
            "options": options,
            "splits": {
                split: {
                    "records": self.records(split),
                    "files": [asdict(file) for file in self.splits[split]],
                }
                for split in schema.SPLITS
            },
            "channel_mean": list(self.channel_mean),
            "channel_deviation": list(self.channel_deviation),
        }
        return json.dumps(content, indent=2) + "\n"


def read(folder: Path) -> Optional[Manifest]:
    """Reads the manifest of a folder; returns None if there is none.

    Raises:
      DamageError: the file cannot be read, or is not a manifest of this format version.
    """
    path = folder / schema.MANIFEST_NAME
    try:
        if path.exists() and not path.is_file():  # To open a named pipe would wait.
            raise DamageError(
                f"{path}: must be a regular file, or a link to one; move it away and rebuild"
            )
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DamageError(f"{path}: cannot be read: {error}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != schema.FORMAT_VERSION:
        raise DamageError(
            f"{path}: format_version must be {schema.FORMAT_VERSION}, is {version!r}; "
            "rebuild with --force"
        )
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamageError(
            f"{path}: not a manifest of data_prep ({type(error).__name__}: {error}); "
            "rebuild with --force"
        ) from error


def _parse(content: dict[str, Any]) -> Manifest:
    source, options = content["source"], content["options"]
    splits = {split: _files(content["splits"][split], split) for split in schema.SPLITS}
    class_names = tuple(str(name) for name in content["class_names"])
    if len(class_names) != schema.NUM_CLASSES:
        raise ValueError(f"{len(class_names)} class names")
    return Manifest(
        source["kind"],
        source["name"],
        source["fingerprint"],
        class_names,
        Options(
            options["validation_size"],
            int(options["shards"]),
            int(content["seed"]),
            _resize(options.get("resize")),  # Folders of older versions do not have it.
        ),
        splits,
        tuple(float(value) for value in content["channel_mean"]),
        tuple(float(value) for value in content["channel_deviation"]),
    )


def _resize(how: Any) -> Optional[str]:
    if how is not None and how not in schema.RESIZES:
        raise ValueError(f"{how!r} is no way to resize images")
    return None if how is None else str(how)


def _files(split: dict[str, Any], name: str) -> tuple[Written, ...]:
    files = tuple(
        Written(str(f["name"]), int(f["records"]), int(f["bytes"]), str(f["sha256"]))
        for f in split["files"]
    )
    for file in files:
        # This also keeps a forged manifest from naming files in other folders.
        parsed = schema.parse_file_name(file.name)
        if parsed is None or parsed[0] != name:
            raise ValueError(f"{file.name!r} is no {name} file")
    if split["records"] != sum(file.records for file in files):
        raise ValueError(f"{name} counts {split['records']!r} records, its files do not")
    return files
