"""The manifest: what a folder of records holds, written last, so that its presence means done."""

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
    """What decides the records besides the source; None takes the default for the source."""

    validation_size: Optional[int] = None
    shards: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json, in its order."""

    kind: str
    name: str
    fingerprint: str
    class_names: tuple[str, ...]
    options: Options
    splits: Mapping[str, tuple[Written, ...]]
    channel_mean: tuple[float, ...]
    channel_deviation: tuple[float, ...]

    def records(self, split: str) -> int:
        """The number of records of a split."""
        return sum(file.records for file in self.splits[split])

    def files(self) -> list[Written]:
        """All files, in the order of the splits."""
        return [file for split in schema.SPLITS for file in self.splits[split]]

    def to_json(self) -> str:
        """Renders the file: the keys are a contract with the training side."""
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
    """Reads DIR/manifest.json; None when there is none.

    Raises:
      DamageError: it is no manifest of this format version.
    """
    path = folder / schema.MANIFEST_NAME
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DamageError(f"{path}: cannot be read: {error}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != schema.FORMAT_VERSION:
        raise DamageError(
            f"{path}: format_version must be {schema.FORMAT_VERSION}, is {version}; "
            "rebuild with --force"
        )
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
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
        Options(options["validation_size"], int(options["shards"]), int(content["seed"])),
        splits,
        tuple(float(value) for value in content["channel_mean"]),
        tuple(float(value) for value in content["channel_deviation"]),
    )


def _files(split: dict[str, Any], name: str) -> tuple[Written, ...]:
    files = tuple(
        Written(str(f["name"]), int(f["records"]), int(f["bytes"]), str(f["sha256"]))
        for f in split["files"]
    )
    for file in files:
        # Also keeps a forged manifest from naming files elsewhere.
        parsed = schema.parse_file_name(file.name)
        if parsed is None or parsed[0] != name:
            raise ValueError(f"{file.name!r} is no {name} file")
    if split["records"] != sum(file.records for file in files):
        raise ValueError(f"{name} counts {split['records']} records, its files do not")
    return files
