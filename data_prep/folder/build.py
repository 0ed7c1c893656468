"""Builds a folder of checked records from a source."""

import contextlib
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from cifar10 import schema
from data_prep.errors import DamageError, OutputError, UsageError
from data_prep.folder import manifest as manifests
from data_prep.folder import publish
from data_prep.folder.manifest import Manifest, Options
from data_prep.sources.dataset import Dataset, Images, Indices, split_training
from data_prep.sources.detect import Source
from data_prep.tfrecord import read, write
from data_prep.tfrecord.write import Written

Say = Callable[[str], None]
_Parts = Mapping[str, tuple[Images, Indices]]


@dataclass(frozen=True)
class Result:
    """The result of `build`.

    Attributes:
      manifest: the manifest of the folder.
      label_counts: split -> number of images of each class; None if the records were up to date.
    """

    manifest: Manifest
    label_counts: Optional[Mapping[str, list[int]]]


def build(source: Source, out: Path, options: Options, force: bool, say: Say) -> Result:
    """Makes `out` hold the records of `source`, unless it holds them already.

    Args:
      source: the source, as `detect.find` returns it.
      out: the folder of records; created if missing.
      options: the options of the records.
      force: whether to rebuild records that are up to date, and to replace records that another
        program wrote.
      say: function that is called with a line of text for each stage.

    Raises:
      DataPrepError: the records could not be built. Until all new records are written and checked,
        the old ones stay as they were.
    """
    if not force and not publish.may_lock(out):
        present, _ = _examine(source, out, options)
        if present is not None:
            return Result(present, None)
    with publish.exclusive(out):
        present, reason = _examine(source, out, options)
        if present is not None and not force:
            with contextlib.suppress(PermissionError):  # It does no harm.
                publish.discard_staging(out)
            return Result(present, None)
        if not force:
            _refuse_foreign(out)
        publish.check_replaceable(out)
        if reason:
            say(reason)
        try:
            result = _stage(source, publish.start_staging(out), options, say)
            publish.publish(out)
        finally:
            publish.discard_staging(out)
        return result


def _examine(
    source: Source, out: Path, options: Options
) -> tuple[Optional[Manifest], Optional[str]]:
    """Returns the manifest if `out` is up to date; else why to build, or None if it is empty."""
    if publish.is_incomplete(out):
        return None, "An earlier build did not finish: building again."
    try:
        manifest = manifests.read(out)
    except DamageError as error:
        return None, f"Rebuilding: {error}"
    if manifest is None:
        return None, None
    if manifest.fingerprint != source.fingerprint:
        return None, f"Rebuilding: the source changed (was {manifest.name}, {manifest.kind})."
    if manifest.options != options:
        return None, "Rebuilding: the options changed."
    expected = {file.name: file.bytes for file in manifest.files()}
    found = {name: _size(out / name) for name in publish.record_files(out)}
    if found != expected:
        names = found.keys() | expected.keys()
        differing = min(name for name in names if found.get(name) != expected.get(name))
        return (
            None,
            f"Rebuilding: {differing} is missing, not in the manifest, or of another size.",
        )
    return manifest, None


def _size(path: Path) -> Optional[int]:
    """Returns the bytes of a file; None if this is no file, or a link to none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _refuse_foreign(out: Path) -> None:
    """Refuses to replace records that another program wrote, such as the tutorial's script.

    Raises:
      OutputError: there are such records.
    """
    if publish.is_incomplete(out) or (out / schema.MANIFEST_NAME).exists():
        return
    names = publish.record_files(out)
    if names:
        raise OutputError(
            f"{out}: holds {names[0]} without a manifest, so another program made it; "
            "choose another --out, or replace it with --force"
        )


def _stage(source: Source, staging: Path, options: Options, say: Say) -> Result:
    """Writes the records and the manifest into `staging`, and reads the records back."""
    say(f"Reading {source.name} ...")
    dataset = source.load()
    if dataset.note:
        say(dataset.note)
    parts = _split(dataset, options)
    total = sum(len(indices) for _, indices in parts.values())
    say(f"Writing {total:,} records ...")
    splits = {
        split: tuple(_write(staging, split, *parts[split], _shards(split, options)))
        for split in schema.SPLITS
    }
    train, chosen = parts[schema.TRAIN]
    manifest = Manifest(
        dataset.kind,
        source.name,
        source.fingerprint,
        dataset.class_names,
        options,
        splits,
        *write.channel_sums(train.pixels, chosen).statistics(),
    )
    say("Reading them back ...")
    counts = {split: _read_back(staging, splits[split]) for split in schema.SPLITS}
    (staging / schema.MANIFEST_NAME).write_text(manifest.to_json())
    return Result(manifest, counts)


def _split(dataset: Dataset, options: Options) -> _Parts:
    """Chooses the images of each split, in random order, so that each part of a file is mixed."""
    seed = options.seed
    everything = np.random.default_rng([seed, 1]).permutation(len(dataset.eval))
    if dataset.validation is None:
        train, validation = split_training(dataset.train.labels, options.validation_size, seed)
        return {
            schema.TRAIN: (dataset.train, train),
            schema.VALIDATION: (dataset.train, validation),
            schema.EVAL: (dataset.eval, everything),
        }
    if options.validation_size is not None:
        raise UsageError(
            f"--validation-size {options.validation_size}: the source has its own validation "
            f"folder of {len(dataset.validation)} images; leave the flag out"
        )
    rng = np.random.default_rng(seed)
    return {
        schema.TRAIN: (dataset.train, rng.permutation(len(dataset.train))),
        schema.VALIDATION: (dataset.validation, rng.permutation(len(dataset.validation))),
        schema.EVAL: (dataset.eval, everything),
    }


def _shards(split: str, options: Options) -> int:
    """Returns the number of files of a split: --shards applies to the train split only."""
    return options.shards if split == schema.TRAIN else 1


def _write(
    folder: Path, split: str, images: Images, indices: Indices, shards: int
) -> list[Written]:
    """Writes one split; an empty split gets no file."""
    if not len(indices):
        return []
    if shards > len(indices):
        raise UsageError(f"--shards must be 1 to {len(indices)} ({split} images), got {shards}")
    written = []
    for index, chosen in enumerate(np.array_split(indices, shards)):
        name = schema.file_name(split, index, shards)
        with (folder / name).open("wb") as file:
            written.append(write.write_records(file, name, images.pixels, images.labels, chosen))
    return written


def _read_back(folder: Path, files: tuple[Written, ...]) -> list[int]:
    """Checks each file against what was written; returns the number of images of each class.

    Raises:
      DamageError: a file does not read back as it was written.
    """
    counts = [0] * schema.NUM_CLASSES
    for file in files:
        scan = read.scan(folder / file.name)
        if scan.damages or (scan.records, scan.sha256) != (file.records, file.sha256):
            detail = scan.damages[0] if scan.damages else "its content differs"
            raise DamageError(f"{file.name} does not read back as written: {detail}")
        counts = [a + b for a, b in zip(counts, scan.label_counts)]
    return counts
