"""Checks a folder of records: every CRC, label and count, and the manifest if there is one."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import numpy as np

from cifar10 import schema
from cifar10_program import DATA, started_as
from data_prep.errors import DamageError, UsageError
from data_prep.folder import manifest as manifests
from data_prep.folder import publish
from data_prep.sources.members import file_sha256
from data_prep.tfrecord import read
from data_prep.tfrecord.write import channel_statistics


@dataclass
class Report:
    """The content of a folder, and its damage.

    Attributes:
      manifest: the manifest; None if there is none or it is damaged.
      label_counts: split -> number of sound records of each class.
      damages: descriptions of the damage, with file and record; empty if there is none.
    """

    manifest: Optional[manifests.Manifest] = None
    label_counts: dict[str, list[int]] = field(default_factory=dict)
    damages: list[str] = field(default_factory=list)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the labels."""
        return schema.CLASS_NAMES if self.manifest is None else self.manifest.class_names


def verify(folder: Path) -> Report:
    """Reads all of `folder`. Without a manifest, counts and checksums are not compared.

    Raises:
      UsageError: there is no such folder, or it has neither records nor a manifest.
      OutputError: a conversion is at work there.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give a folder of .tfrecords")
    lock = folder / publish.LOCK_NAME
    is_ours = os.access(lock, os.R_OK)  # Records of other programs have none.
    with publish.locked(lock, "rb") if is_ours else contextlib.nullcontext():
        return examine(folder)


def examine(folder: Path) -> Report:
    """Reads all of `folder`, as `verify`, without regard to other runs."""
    has_manifest = (folder / schema.MANIFEST_NAME).exists()
    names = publish.record_files(folder, ours=has_manifest)
    if not names and not has_manifest:
        raise UsageError(f"{folder}: no records; make them with {started_as(DATA)} --source PATH")
    report = Report()
    if (folder / schema.INCOMPLETE_NAME).exists():
        report.damages.append(f"{folder / schema.INCOMPLETE_NAME}: a build did not finish")
    try:
        report.manifest = manifests.read(folder)
    except DamageError as error:
        report.damages.append(str(error))
    train = _read_all(folder, names, report)
    if not has_manifest:
        try:
            schema.record_sets(names)
        except ValueError as error:
            report.damages.append(f"{folder}/{error}")
    # Damaged records have other statistics, so the manifest is not blamed for theirs.
    if report.manifest is not None and train and not report.damages:
        pixels = np.frombuffer(train, np.uint8).reshape(-1, schema.IMAGE_BYTES)
        mean, deviation = channel_statistics(pixels, np.arange(len(pixels)))
        said = [*report.manifest.channel_mean, *report.manifest.channel_deviation]
        if len(said) != 2 * schema.CHANNELS or not np.allclose(
            [*mean, *deviation], said, rtol=1e-6, atol=0
        ):
            report.damages.append(
                f"{folder / schema.MANIFEST_NAME}: channel_mean and channel_deviation are not "
                f"those of the train records, {mean} and {deviation}"
            )
    return report


def _read_all(folder: Path, names: Mapping[str, str], report: Report) -> bytearray:
    """Adds the content of every file to `report`; returns the images of the train split."""
    train, num_classes = bytearray(), len(report.class_names)
    report.label_counts = {split: [0] * num_classes for split in schema.SPLITS}
    expected = {} if report.manifest is None else report.manifest.files
    for name in sorted({*names, *expected}):
        path = folder / name
        if name not in names:
            report.damages.append(f"{path}: is in the manifest but not in the folder")
            continue
        records, damages = 0, len(report.damages)
        for image, label in read.scan(path, report.damages, num_classes):
            report.label_counts[names[name]][label] += 1
            records += 1
            if names[name] == schema.TRAIN:
                train += image
        if report.manifest is None or len(report.damages) > damages:
            continue
        said = expected.get(name)
        if said is None:
            report.damages.append(f"{path}: is not in the manifest; training leaves it out")
        elif file_sha256(path) != said.sha256:
            which = f"its {records:,} records are not the {said.records:,} of the manifest"
            report.damages.append(f"{path}: {which}, by their SHA-256")
    return train
