"""Opens a data folder: finds the splits' files, counts records, reads the manifest."""

import contextlib
import dataclasses
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import schema
from cifar10.errors import DataError
from cifar10_program.paths import is_utf8
from cifar10_program.streams import one_line

# Channel means and standard deviations of CIFAR-10's 50,000 training images, for records without a
# manifest.
CIFAR10_MEAN = (125.31, 122.95, 113.87)
CIFAR10_STD = (62.99, 62.09, 66.70)

# What reading a JSON document raises where it is not as expected.
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
_MOST_NAMES = 5  # of a folder's files in a message


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """The records of a data folder.

    Attributes:
      data_dir: the folder.
      manifest: the manifest that data_prep wrote, or a substitute for records without one.
      manifest_content: the content of the file that it was read from; None: there is none.
    """

    data_dir: str
    manifest: dict[str, Any]
    manifest_content: Optional[bytes] = None

    @property
    def counts(self) -> dict[str, int]:
        """The number of records of each split that has any."""
        counts = {split: entry["records"] for split, entry in self.manifest["splits"].items()}
        return {split: count for split, count in counts.items() if count}

    @property
    def channels(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Means and standard deviations of the training images' channels R, G, B, in [0, 255]."""
        return tuple(self.manifest["channel_mean"]), tuple(self.manifest["channel_deviation"])

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the labels."""
        return tuple(self.manifest["class_names"])

    @property
    def resize(self) -> Optional[str]:
        """How data_prep resized images, one of `schema.RESIZES`; None: it did not."""
        options = self.manifest.get("options")
        how = options.get("resize") if isinstance(options, dict) else None
        return how if how in schema.RESIZES else None

    @property
    def has_validation(self) -> bool:
        """Whether a validation split was held out."""
        return self.counts.get(schema.VALIDATION, 0) > 0

    def files(self, split: str) -> dict[str, dict[str, Any]]:
        """Returns the manifest's entry of each of a split's files by its path, in order."""
        entries = self.manifest["splits"].get(split, {"files": ()})["files"]
        in_order = sorted(entries, key=lambda file: file["name"])
        return {tf.io.gfile.join(self.data_dir, file["name"]): file for file in in_order}

    def fingerprint(self) -> list[str]:
        """Returns what identifies each training file, in order: the manifest's SHA-256.

        Without one, it is the file's name and size.
        """
        files = self.files(schema.TRAIN).items()
        return [
            str(file.get("sha256") or f"{file['name']}, {_size(path)} bytes")
            for path, file in files
        ]

    def require(self, split: str) -> None:
        """Raises DataError if `split` has no records."""
        if not self.counts.get(split):
            held = _hint(self.data_dir, _names(self.data_dir))
            raise DataError(f"{self.data_dir} has no {split} records; {held}")


def _hint(data_dir: str, names: Sequence[str] = ()) -> str:
    """Returns the end of a message about missing records: what is there instead, and a command."""
    names = [name for name in names if name[0] != "."]
    held = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    holds = f"it holds {held}; training reads {schema.RECORD_NAMES}; " if names else ""
    return (
        f"{holds}`python -m data_prep --source SOURCE --out {shlex.quote(data_dir)}` makes them, "
        "where SOURCE is cifar-10-python.tar.gz, cifar-10-batches-py, an image folder, or synthetic"
    )


def open_records(data_dir: str, *needed: str) -> RecordSet:
    """Opens a data folder: that of data_prep, or the tutorial's own three files.

    Args:
      data_dir: the folder, any path that tf.io.gfile opens.
      *needed: the splits that it must have.

    Returns:
      The records, of at least one split.

    Raises:
      DataError: there are no records, or none of a split in `needed`; files are missing, unreadable
        or of another size or format, the records are half-written, or a channel has the same value
        in all training images.
    """
    names = _names(data_dir)
    if schema.INCOMPLETE_NAME in names:
        raise DataError(
            f"the records in {data_dir} are half-written; run the same data_prep command again"
        )
    if schema.MANIFEST_NAME in names:
        # What another program put beside these records is none of them.
        records = _described_records(data_dir)
    else:
        records = RecordSet(data_dir, _stand_in(data_dir, names))
    if not records.counts:
        raise DataError(f"no records in {data_dir}; {_hint(data_dir, names)}")
    if min(records.channels[1]) <= 0:
        raise DataError(
            f"the training images in {data_dir} have the same value everywhere in a channel, R, G "
            "or B, which leaves nothing to learn from it; make records of other images"
        )
    for split in needed:
        records.require(split)
    return records


def _names(data_dir: str) -> list[str]:
    """Returns the sorted names of a folder's entries.

    Raises:
      DataError: it is not there, or cannot be read.
    """
    local = data_dir.removeprefix("file://")
    with _readable(data_dir, "folder"):
        try:
            if "://" in local:
                return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(data_dir))
            return sorted(os.listdir(local))
        except (FileNotFoundError, tf.errors.NotFoundError) as error:
            raise DataError(f"no records in {data_dir}; {_hint(data_dir)}") from error


def _described_records(data_dir: str) -> RecordSet:
    """Reads the manifest, and compares the sizes of the files; `data_prep verify` compares all."""
    path = tf.io.gfile.join(data_dir, schema.MANIFEST_NAME)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = bytes(file.read())
        manifest = json.loads(content)
        if (version := manifest["format_version"]) != schema.FORMAT_VERSION:
            raise DataError(
                f"{path} has format version {version!r}, this code reads {schema.FORMAT_VERSION}; "
                "run data_prep with --force"
            )
        _check_manifest(manifest)
    except (tf.errors.OpError, *_MALFORMED) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} is no manifest of data_prep ({reason}); run data_prep with --force"
        ) from error
    manifest["class_names"] = [one_line(name) for name in manifest["class_names"]]
    manifest["source"]["kind"] = one_line(manifest["source"]["kind"])
    records = RecordSet(data_dir, manifest, content)
    for split in manifest["splits"]:
        for file_path, file in records.files(split).items():
            size = _size(file_path)
            if size != file["bytes"]:
                raise DataError(
                    f"{file_path} has {size:,} bytes, the manifest says {file['bytes']:,}; "
                    "run data_prep with --force"
                )
    return records


def _check_manifest(manifest: Any) -> None:
    """Raises an error if an entry that training reads is missing, inconsistent or of a wrong type.

    It may be any of `_MALFORMED`.
    """
    kind, classes = manifest["source"]["kind"], manifest["class_names"]
    _expect(_is_text(kind), "source.kind", "text", kind)
    for split, entry in manifest["splits"].items():
        names = [file["name"] for file in entry["files"]]
        ours = [schema.parse_file_name(name) for name in names]
        _expect(all(name and name[0] == split for name in ours), split, f"files of {split}", names)
        _expect(len(set(names)) == len(names), split, "different files", names)
        numbers = [file[key] for file in entry["files"] for key in ("records", "bytes")]
        are_counts = all(type(number) is int and number >= 0 for number in numbers)  # not True
        _expect(are_counts, split, "files of whole numbers of bytes", numbers)
        total = sum(file["records"] for file in entry["files"])
        _expect(entry["records"] == total, f"{split}.records", f"{total}, as of its files", entry)
    are_names = isinstance(classes, list) and len(classes) > 1 and all(map(_is_text, classes))
    _expect(are_names, "class_names", "two names or more", classes)
    for key in ("channel_mean", "channel_deviation"):
        values = manifest[key]
        sound = [value for value in values if type(value) in (int, float) and 0 <= value <= 255]
        are_three = len(values) == len(sound) == schema.CHANNELS
        _expect(are_three, key, f"{schema.CHANNELS} numbers from 0 to 255", values)


def _expect(is_so: bool, what: str, rule: str, value: Any) -> None:
    if not is_so:
        raise ValueError(f"{what} must be {rule}, got {value!r}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_utf8(value)


def _size(path: str) -> int:
    """Returns the size of a file in bytes, after its first byte has been read.

    Raises:
      DataError: it cannot be read.
    """
    with _readable(path), tf.io.gfile.GFile(path, "rb") as file:
        file.read(1)
        return int(file.size())


@contextlib.contextmanager
def _readable(path: str, kind: str = "file") -> Iterator[None]:
    """Raises DataError for what TensorFlow says of a file or folder that cannot be read."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message.rpartition("; ")[2]
        is_damaged = isinstance(error, tf.errors.DataLossError)
        advice = "copy it again" if is_damaged else f"make it a readable {kind}"
        raise DataError(
            f"{path} cannot be read: {reason}; {advice}, or run the data_prep command again"
        ) from error


def _stand_in(data_dir: str, names: Sequence[str]) -> dict[str, Any]:
    """Makes a manifest of records that have none."""
    try:
        sets = schema.record_sets(names)
    except ValueError as error:
        raise DataError(f"{data_dir}/{error}") from error
    splits = {}
    for split, held in sets.items():
        paths = {name: tf.io.gfile.join(data_dir, name) for name in held}
        files = [
            {"name": name, "records": count_records(path), "bytes": tf.io.gfile.stat(path).length}
            for name, path in paths.items()
        ]
        splits[split] = {"records": sum(file["records"] for file in files), "files": files}
    return {
        "source": {"kind": "unknown", "name": "records without a manifest", "fingerprint": None},
        "class_names": list(schema.CLASS_NAMES),
        "splits": splits,
        "channel_mean": list(CIFAR10_MEAN),
        "channel_deviation": list(CIFAR10_STD),
    }


def count_records(path: str) -> int:
    """Counts the records of a TFRecord file, and checks their CRCs.

    Raises:
      DataError: the file ends inside a record, or cannot be read.
    """
    options = tf.io.TFRecordOptions("GZIP" if path.endswith(".gz") else "")
    with _readable(path):
        return sum(1 for _ in tf.io.tf_record_iterator(path, options))
