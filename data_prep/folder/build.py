"""Builds a folder of checked records from a source."""

from collections.abc import Callable
from pathlib import Path
from typing import Optional

import numpy as np

from cifar10 import schema
from data_prep.errors import DamageError, OutputError, UsageError
from data_prep.folder import manifest as manifests
from data_prep.folder import publish, verify
from data_prep.folder.manifest import Manifest, Options, Origin, Split
from data_prep.sources.dataset import Dataset, Images, check, split_training
from data_prep.sources.detect import Source
from data_prep.tfrecord import write
from data_prep.tfrecord.write import Indices

Say = Callable[[str], None]


def build(
    source: Source, out: Path, options: Options, seed: int, force: bool, say: Say
) -> Optional[verify.Report]:
    """Makes `out` hold the records of `source`; returns None if it holds them already.

    Args:
      source: the source, as `detect.find` returns it.
      out: the folder of records; created if missing.
      options: the options of the records.
      seed: seed of the splits and of the order of the records.
      force: whether to rebuild records that are up to date, and to replace records that another
        program wrote.
      say: function that is called with a line of text for each stage.

    Raises:
      DataPrepError: the records could not be built. Until all new records are written and checked,
        the old ones stay as they were.
    """
    reason = _why(source, out, options, seed, force)
    if reason is None:
        return None  # The folder may be one that this user only reads.
    out.mkdir(parents=True, exist_ok=True)
    with publish.locked(out / publish.LOCK_NAME):
        publish.check_replaceable(out)
        if reason:
            say(reason)
        try:
            publish.discard_staging(out)  # what a killed run left in it
            staging = out / publish.STAGING_NAME
            staging.mkdir()
            _stage(source, staging, options, seed, say)
            say("Reading them back ...")
            report = verify.examine(staging)
            if report.damages:
                raise DamageError(f"the records do not read back as written: {report.damages[0]}")
            publish.publish(out)
        finally:
            publish.discard_staging(out)
    return report


def _why(source: Source, out: Path, options: Options, seed: int, force: bool) -> Optional[str]:
    """Returns why the records must be built; nothing, if that need not be said; None: up to date.

    Raises:
      OutputError: another program, such as the tutorial's script, wrote the records in `out`.
    """
    if (out / schema.INCOMPLETE_NAME).exists():
        return "An earlier build did not finish: building again."
    try:
        manifest = manifests.read(out)
    except DamageError as error:
        return f"Rebuilding: {error}"
    names = publish.record_files(out) if out.is_dir() else {}
    if manifest is None:
        if names and not force:
            raise OutputError(
                f"{out}: holds {next(iter(names))} without a manifest, so another program made it; "
                "choose another --out, or replace it with --force"
            )
        return ""
    was = manifest.source
    if was.fingerprint != source.fingerprint:
        return f"Rebuilding: the source changed (was {was.name}, {was.kind})."
    if (manifest.options, manifest.seed) != (options, seed):
        return "Rebuilding: the options changed."
    for name in sorted({*manifest.files, *names}):
        file, path = manifest.files.get(name), out / name
        if file is None or not path.is_file() or path.stat().st_size != file.bytes:
            return f"Rebuilding: {name} is missing, not in the manifest, or of another size."
    return "" if force else None


def _stage(source: Source, staging: Path, options: Options, seed: int, say: Say) -> None:
    """Writes the records and the manifest into `staging`."""
    say(f"Reading {source.name} ...")
    dataset = source.load()
    check(dataset)
    for line in dataset.note.splitlines():
        say(line)
    parts = _split(dataset, options.validation_size, seed)
    say(f"Writing {sum(len(indices) for _, indices in parts.values()):,} records ...")
    splits = {
        split: _write(staging, split, *part, options.shards if split == schema.TRAIN else 1)
        for split, part in parts.items()
    }
    train, chosen = parts[schema.TRAIN]
    origin = Origin(dataset.kind, source.name, source.fingerprint)
    statistics = write.channel_statistics(train.pixels, chosen)
    manifest = Manifest(origin, dataset.class_names, seed, options, splits, *statistics)
    (staging / schema.MANIFEST_NAME).write_text(manifest.to_json())


def _split(
    dataset: Dataset, validation_size: Optional[int], seed: int
) -> dict[str, tuple[Images, Indices]]:
    """Chooses the images of each split, in random order, so that each part of a file is mixed."""
    validation = dataset.validation
    if validation is None:
        held_out = dataset.train
        train, chosen = split_training(held_out.labels, validation_size, seed)
    elif validation_size is not None:
        fault = f"the source has its own validation folder of {len(validation)} images"
        raise UsageError(f"--validation-size {validation_size}: {fault}; leave the flag out")
    else:
        rng, held_out = np.random.default_rng(seed), validation
        train, chosen = rng.permutation(len(dataset.train)), rng.permutation(len(validation))
    everything = np.random.default_rng([seed, 1]).permutation(len(dataset.eval))
    return {
        schema.TRAIN: (dataset.train, train),
        schema.VALIDATION: (held_out, chosen),
        schema.EVAL: (dataset.eval, everything),
    }


def _write(folder: Path, split: str, images: Images, indices: Indices, shards: int) -> Split:
    """Writes one split; an empty split gets no file."""
    if shards > len(indices) > 0:
        raise UsageError(f"--shards must be 1 to {len(indices)} ({split} images), got {shards}")
    written = [
        write.write_records(
            folder / schema.file_name(split, index, shards), images.pixels, images.labels, chosen
        )
        for index, chosen in enumerate(np.array_split(indices, shards))
        if len(chosen)
    ]
    return Split(len(indices), tuple(written))
