"""Checks a folder of records: every CRC, label and count, and the manifest if there is one."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import numpy as np

from cifar10 import schema
from cifar10_program import DATA, started_as
from data_prep.errors import DamageError, OutputError, UsageError
from data_prep.folder import manifest as manifests
from data_prep.folder import publish
from data_prep.folder.manifest import Manifest
from data_prep.tfrecord import read
from data_prep.tfrecord import write as records
from data_prep.tfrecord.write import Written

_BLOCK_IMAGES = 4096


@dataclass
class Report:
    """The content of a folder, and its damage.

    Attributes:
      manifest: the manifest; None if there is none or it is damaged.
      records: number of records found.
      label_counts: split -> number of sound records of each class.
      damages: descriptions of the damage, with file and record; empty if there is none.
    """

    manifest: Optional[Manifest] = None
    records: int = 0
    label_counts: dict[str, list[int]] = field(default_factory=dict)
    damages: list[str] = field(default_factory=list)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names of the manifest, or CIFAR-10's if there is no manifest."""
        return schema.CLASS_NAMES if self.manifest is None else self.manifest.class_names


def verify(folder: Path) -> Report:
    """Reads all of `folder`. Without a manifest, counts and checksums are not compared.

    Raises:
      UsageError: there is no such folder, or it has neither records nor a manifest.
      OutputError: a conversion is replacing the records, or did so meanwhile.
      DamageError: the records are of another schema.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a folder of .tfrecords")
    _refuse_replaced(folder)
    before = _manifest_content(folder)
    report = _examine(folder)
    if report.damages:
        _refuse_replaced(folder)
        if _manifest_content(folder) != before:
            raise OutputError(
                f"{folder}: a conversion has replaced these records meanwhile; verify again"
            )
    return report


def _manifest_content(folder: Path) -> Optional[bytes]:
    path = folder / schema.MANIFEST_NAME
    try:
        return path.read_bytes() if path.is_file() else None  # To open a named pipe would wait.
    except OSError:
        return None


def _refuse_replaced(folder: Path) -> None:
    # The marker comes first: to look at the lock could keep a conversion that starts from it.
    if publish.is_incomplete(folder) and publish.is_held(folder):
        raise OutputError(
            f"{folder}: a conversion is replacing these records; wait for it, then verify again"
        )


def _examine(folder: Path) -> Report:
    has_manifest = (folder / schema.MANIFEST_NAME).exists()
    names = publish.record_files(folder, ours=has_manifest)
    if not names and not has_manifest:
        raise UsageError(
            f"{folder}: holds no records; make them with {started_as(DATA)} --source PATH "
            f"--out {folder}"
        )
    report = Report()
    if publish.is_incomplete(folder):
        report.damages.append(f"{folder / schema.INCOMPLETE_NAME}: a build did not finish")
    try:
        report.manifest = manifests.read(folder)
    except DamageError as error:
        report.damages.append(str(error))
    sums = _scan_all(folder, names, report)
    if not has_manifest:
        try:
            schema.record_sets(names)
        except ValueError as error:
            report.damages.append(f"{folder}/{error}")
    if report.manifest is not None and sums is not None:
        report.damages += _statistics_damage(folder, report.manifest, sums)
    return report


def _scan_all(folder: Path, names: list[str], report: Report) -> Optional[records.ChannelSums]:
    """Adds the content of every file to `report`.

    Returns:
      The channel sums of the train split; None if a file of it is damaged.
    """
    sums, train_is_sound = records.ChannelSums(), True
    expected = {} if report.manifest is None else {f.name: f for f in report.manifest.files()}
    for name in sorted(set(names) | set(expected)):
        split, _, _ = schema.parse_record_name(name) or ("", 0, 0)
        if name in names:
            damages = _scan_file(folder / name, split, expected.get(name), report, sums)
        else:
            damages = [f"{folder / name}: is in the manifest but not in the folder"]
        report.damages += damages
        if damages and split == schema.TRAIN:
            train_is_sound = False
    return sums if train_is_sound else None


def _scan_file(
    path: Path,
    split: str,
    expected: Optional[Written],
    report: Report,
    sums: records.ChannelSums,
) -> list[str]:
    """Adds the records of a file to `report`, and those of the train split to `sums`.

    Args:
      path: path of the file.
      split: its split.
      expected: its entry in the manifest; None if there is none.
      report: the report of its folder.
      sums: the channel sums of the train split.

    Returns:
      Descriptions of the damage.
    """
    collector = _Collector(sums) if split == schema.TRAIN else None
    scan = read.scan(path, collector)
    if scan.is_foreign:
        raise DamageError(scan.damages[0])
    if collector is not None:
        collector.flush()
    report.records += scan.records
    counts = report.label_counts.setdefault(split, [0] * schema.NUM_CLASSES)
    report.label_counts[split] = [a + b for a, b in zip(counts, scan.label_counts)]
    if report.manifest is None or scan.damages:
        return scan.damages
    return _differences(path, scan, expected)


class _Collector:
    """Collects images, so that numpy sums thousands of them at once."""

    def __init__(self, sums: records.ChannelSums) -> None:
        self._sums, self._buffer = sums, bytearray()

    def __call__(self, image: bytes, label: int) -> None:
        self._buffer += image
        if len(self._buffer) >= _BLOCK_IMAGES * schema.IMAGE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Adds the collected images to the sums."""
        rows = np.frombuffer(bytes(self._buffer), np.uint8).reshape(-1, schema.IMAGE_BYTES)
        self._sums.add(rows)
        self._buffer = bytearray()


def _differences(path: Path, scan: read.Scan, expected: Optional[Written]) -> list[str]:
    """Returns how an undamaged file differs from its entry in the manifest; empty if it agrees."""
    if expected is None:
        return [f"{path}: is not in the manifest; training leaves it out"]
    if scan.records != expected.records:
        return [f"{path}: holds {scan.records} records, the manifest says {expected.records}"]
    if scan.sha256 != expected.sha256:
        return [f"{path}: SHA-256 is {scan.sha256}, the manifest says {expected.sha256}"]
    return []


def _statistics_damage(folder: Path, manifest: Manifest, sums: records.ChannelSums) -> list[str]:
    if not sums.images:
        return []
    found = sums.statistics()
    said = (manifest.channel_mean, manifest.channel_deviation)
    close = all(
        len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-6) for x, y in zip(a, b))
        for a, b in zip(found, said)
    )
    if close:
        return []
    return [
        f"{folder / schema.MANIFEST_NAME}: channel_mean and channel_deviation are not those of "
        f"the train records, {found[0]} and {found[1]}"
    ]
