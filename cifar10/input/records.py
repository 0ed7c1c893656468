"""Opens a data folder: finds the splits' files, counts records, reads the manifest."""

import contextlib
import dataclasses
import json
import os
import posixpath
import struct
from collections.abc import Iterator
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import schema
from cifar10.errors import DataError
from cifar10_program.paths import is_utf8

# Channel means and standard deviations of CIFAR-10's 50,000 training images, for records without a
# manifest.
CIFAR10_MEAN = (125.31, 122.95, 113.87)
CIFAR10_DEVIATION = (62.99, 62.09, 66.70)

_HEADER = struct.Struct("<QI")  # length of the record, CRC of the length
_FOOTER_BYTES = 4  # CRC of the record


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """The records of a data folder.

    Attributes:
      data_dir: the folder.
      files: paths of each split's files, in order; splits that the manifest leaves empty are
        absent.
      counts: the number of records of each split.
      channel_mean: the means of the training images' channels R, G, B, in [0, 255].
      channel_deviation: the standard deviations of these channels.
      manifest: the manifest that data_prep wrote, or a substitute for records without one.
      manifest_content: the content of the file that it was read from; None: there is none.
    """

    data_dir: str
    files: dict[str, tuple[str, ...]]
    counts: dict[str, int]
    channel_mean: tuple[float, ...]
    channel_deviation: tuple[float, ...]
    manifest: dict[str, Any]
    manifest_content: Optional[bytes] = None

    @property
    def manifest_path(self) -> str:
        """The path of the manifest."""
        return _manifest_path(self.data_dir)

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

    def fingerprints(self) -> dict[str, list[str]]:
        """Returns what identifies each file of the train and validation splits, in order, by split.

        It is the manifest's SHA-256; without one, the file's name and size.
        """
        return {
            split: [self._fingerprint(split, path) for path in self.files[split]]
            for split in (schema.TRAIN, schema.VALIDATION)
            if split in self.files
        }

    def _fingerprint(self, split: str, path: str) -> str:
        name = posixpath.basename(path)
        described = self.manifest["splits"].get(split, {"files": []})["files"]
        known = {file["name"]: file.get("sha256") for file in described}
        return str(known.get(name) or f"{name}, {_size(path)} bytes")

    def require(self, split: str) -> None:
        """Raises DataError if `split` has no records."""
        if not self.counts.get(split):
            raise DataError(f"{self.data_dir} has no {split} records; {way_out(self.data_dir)}")


def way_out(data_dir: str) -> str:
    """Returns a sentence for error messages, with the command that makes the records."""
    return (
        f"`python -m data_prep --source SOURCE --out {data_dir}` makes them, where SOURCE is "
        "cifar-10-python.tar.gz, an image folder, or synthetic"
    )


def open_records(data_dir: str) -> RecordSet:
    """Opens a data folder: that of data_prep, or the tutorial's own three files.

    Args:
      data_dir: the folder, any path that tf.io.gfile opens.

    Returns:
      The records, of at least one split.

    Raises:
      DataError: there are no records, files are missing, unreadable or of another size or format,
        the records are half-written, or a channel has the same value in all training images.
    """
    names = _names(data_dir)
    if schema.INCOMPLETE_NAME in names:
        raise DataError(
            f"the records in {data_dir} are half-written; run the same data_prep command again"
        )
    files = _split_files(data_dir, names)
    content = None
    if schema.MANIFEST_NAME in names:
        content, manifest = _read_manifest(data_dir)
        counts = _check_against_manifest(data_dir, files, manifest)
        # What another program put beside these records is none of them.
        files = {split: paths for split, paths in files.items() if counts.get(split)}
    else:
        counts = {split: sum(map(count_records, paths)) for split, paths in files.items()}
        manifest = _stand_in(counts)
    if not files:
        raise DataError(f"no records in {data_dir}; {way_out(data_dir)}")
    if min(manifest["channel_deviation"]) <= 0:
        raise DataError(
            f"the training images in {data_dir} have the same value everywhere in a channel, R, G "
            "or B, which leaves nothing to learn from it; make records of other images"
        )
    return RecordSet(
        data_dir=data_dir,
        files=files,
        counts={split: count for split, count in counts.items() if count},
        channel_mean=tuple(manifest["channel_mean"]),
        channel_deviation=tuple(manifest["channel_deviation"]),
        manifest=manifest,
        manifest_content=content,
    )


def _names(data_dir: str) -> list[str]:
    """Returns the sorted names of a folder's entries.

    Raises:
      DataError: it is not there, or cannot be read.
    """
    with _readable(data_dir, "folder"):
        try:
            return sorted(name.rstrip("/") for name in tf.io.gfile.listdir(data_dir))
        except UnicodeDecodeError:
            # TensorFlow fails at a name that is no UTF-8, though no file of records has one.
            return sorted(os.listdir(data_dir.removeprefix("file://")))
        except tf.errors.NotFoundError as error:
            # TensorFlow says that also of a folder inside one that may not be entered.
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.stat(data_dir)
            raise DataError(f"no records in {data_dir}; {way_out(data_dir)}") from error


def _split_files(data_dir: str, names: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[int, set[int]]] = {}
    for name in names:
        parsed = schema.parse_file_name(name)
        if parsed:
            split, index, count = parsed
            found.setdefault(split, {}).setdefault(count, set()).add(index)
    files = {}
    for split, by_count in found.items():
        if len(by_count) > 1:
            raise DataError(
                f"{data_dir} holds {split} records cut into {sorted(by_count)} files each; "
                "keep one of these sets, or run data_prep with --force"
            )
        ((count, indices),) = by_count.items()
        missing = sorted(set(range(count)) - indices)
        if missing:
            name = schema.file_name(split, missing[0], count)
            raise DataError(f"{data_dir}/{name} is missing; run the data_prep command again")
        files[split] = tuple(
            tf.io.gfile.join(data_dir, schema.file_name(split, index, count))
            for index in range(count)
        )
    return files


def _manifest_path(data_dir: str) -> str:
    return str(tf.io.gfile.join(data_dir, schema.MANIFEST_NAME))


def _read_manifest(data_dir: str) -> tuple[bytes, dict[str, Any]]:
    """Returns the content of the manifest's file, and the manifest."""
    path = _manifest_path(data_dir)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = bytes(file.read())
        manifest = json.loads(content)
        version = manifest["format_version"]
        if version == schema.FORMAT_VERSION:
            _check_manifest(manifest)
    except (
        tf.errors.OpError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} is no manifest of data_prep ({reason}); run data_prep with --force"
        ) from error
    if version != schema.FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version!r}, this code reads {schema.FORMAT_VERSION}; "
            "run data_prep with --force"
        )
    return content, dict(manifest)


def _check_manifest(manifest: Any) -> None:
    """Raises an error if an entry that training reads is missing, inconsistent or of a wrong type.

    It may be any of the errors that `_read_manifest` catches, such as KeyError or ValueError.
    """
    if not _is_text(manifest["source"]["kind"]):
        raise ValueError(f"source.kind must be text, got {manifest['source']['kind']!r}")
    for split, entry in manifest["splits"].items():
        _check_files(split, entry["files"])
        if entry["records"] != sum(file["records"] for file in entry["files"]):
            raise ValueError(f"{split} counts {entry['records']!r} records, its files do not")
    names = manifest["class_names"]
    if len(names) != schema.NUM_CLASSES or not all(map(_is_text, names)):
        raise ValueError(f"class_names must be {schema.NUM_CLASSES} names, got {names!r}")
    for key in ("channel_mean", "channel_deviation"):
        numbers = manifest[key]
        if len(numbers) != schema.CHANNELS or not all(map(_is_pixel_value, numbers)):
            raise ValueError(
                f"{key} must be {schema.CHANNELS} numbers from 0 to 255, got {numbers!r}"
            )


def _check_files(split: str, files: Any) -> None:
    """Raises an error, as `_check_manifest` does, if the entries of a split's files are wrong."""
    for file in files:
        name = file["name"]
        parsed = schema.parse_file_name(name)
        if parsed is None or parsed[0] != split:
            raise ValueError(f"{name!r} is no {split} file")
        for key in ("records", "bytes"):
            if not _is_count(file[key]):
                raise ValueError(f"{key} of {name} must be a whole number, got {file[key]!r}")
    if len({file["name"] for file in files}) != len(files):
        raise ValueError(f"{split} names a file twice")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and is_utf8(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0  # True is an int, too.


def _is_pixel_value(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 255


def _check_against_manifest(
    data_dir: str, files: dict[str, tuple[str, ...]], manifest: dict[str, Any]
) -> dict[str, int]:
    """Compares the files' names and sizes with the manifest; returns the records per split.

    `data_prep verify` also compares the contents.
    """
    counts = {}
    for split, entry in manifest["splits"].items():
        counts[split] = entry["records"]
        for described in entry["files"]:
            path = tf.io.gfile.join(data_dir, described["name"])
            if path not in files.get(split, ()):
                raise DataError(f"{path} is missing; run the data_prep command again")
            size = _size(path)
            if size != described["bytes"]:
                raise DataError(
                    f"{path} has {size:,} bytes, the manifest says {described['bytes']:,}; "
                    "run data_prep with --force"
                )
    return counts


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
    except tf.errors.OpError as error:
        reason = error.message.rpartition("; ")[2]
        raise DataError(
            f"{path} cannot be read: {reason}; make it a readable {kind}, or run the data_prep "
            "command again"
        ) from error


def _stand_in(counts: dict[str, int]) -> dict[str, Any]:
    return {
        "source": {"kind": "unknown", "name": "records without a manifest", "fingerprint": None},
        "class_names": list(schema.CLASS_NAMES),
        "splits": {split: {"records": count, "files": []} for split, count in counts.items()},
        "channel_mean": list(CIFAR10_MEAN),
        "channel_deviation": list(CIFAR10_DEVIATION),
    }


def count_records(path: str) -> int:
    """Counts the records of a TFRecord file by their length fields, without parsing them.

    Raises:
      DataError: the file ends inside a record, or cannot be read.
    """
    count, position = 0, 0
    with _readable(path), tf.io.gfile.GFile(path, "rb") as file:
        data = file.read()
    while position < len(data):
        end = position + _HEADER.size
        if end <= len(data):
            length, _ = _HEADER.unpack_from(data, position)
            end += length + _FOOTER_BYTES
        if end > len(data):
            raise DataError(f"{path} ends inside record {count}; make it again with data_prep")
        count, position = count + 1, end
    return count
