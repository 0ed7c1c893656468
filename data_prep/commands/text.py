"""What each command prints around its work."""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cifar10 import schema
from data_prep.commands import convert as build
from data_prep.folder.manifest import Manifest, Options
from data_prep.sources import detect, synthetic

_PUBLISHED_NOTE = {
    True: "the published archive, by its SHA-256",
    False: "not byte for byte the published archive",
}


def convert(arguments: argparse.Namespace) -> int:
    """Builds the records, or finds them done."""
    started = time.monotonic()
    out = Path(arguments.out)
    source = detect.find(arguments.source, arguments.seed, arguments.synthetic_size)
    options = Options(arguments.validation_size, arguments.shards, arguments.seed)
    result = build.build(
        source, out, options, arguments.force, lambda line: print(line, flush=True)
    )
    if result.label_counts is None:
        print(f"{out} is up to date with {source.name}: nothing to do (--force rebuilds).")
        return 0
    _describe_source(result.manifest)
    _print_counts(result.manifest.class_names, result.label_counts)
    print(f"\nWritten and verified in {time.monotonic() - started:.1f} s: {out}")
    print(f"Next: python cifar10_main.py --data-dir {out} --train-batch-size=128")
    return 0


def _describe_source(manifest: Manifest) -> None:
    if manifest.kind == synthetic.KIND:
        print("\nSynthetic: ten drawn shapes, made here. This is not CIFAR-10, and accuracy on it")
        print("says nothing about CIFAR-10.")
        return
    from data_prep.published.archives import ARCHIVES

    note = ""
    if manifest.kind in (archive.kind for archive in ARCHIVES.values()):
        published = manifest.fingerprint in (archive.sha256 for archive in ARCHIVES.values())
        note = f", {_PUBLISHED_NOTE[published]}"
    print(f"\nSource: {manifest.name} ({manifest.kind}{note})")


def _print_counts(class_names: Sequence[str], counts: Mapping[str, Sequence[int]]) -> None:
    """Prints images per split, and per class within it."""
    splits = [split for split in schema.SPLITS if split in counts]
    print(f"\n{'':12}" + "".join(f"{split:>12}" for split in splits))
    for label, name in enumerate(class_names):
        print(f"{name:12}" + "".join(f"{counts[split][label]:12,}" for split in splits))
    print(f"{'all':12}" + "".join(f"{sum(counts[split]):12,}" for split in splits))


def download(arguments: argparse.Namespace) -> int:
    """Fetches a published archive."""
    from data_prep.published import fetch as downloads
    from data_prep.published.archives import ARCHIVES

    archive = ARCHIVES[arguments.archive]
    path = downloads.fetch(archive, Path(arguments.out), arguments.url)
    print(f"{path}: {archive.bytes:,} bytes, SHA-256 as published.")
    print(f"Next: python -m data_prep --source {path} --out {schema.DEFAULT_DATA_DIR}")
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Checks a folder; damage goes to stdout too, since it is this command's answer."""
    from data_prep.commands import verify as verifying

    folder = Path(arguments.folder)
    report = verifying.verify(folder)
    _print_counts(report.class_names, report.label_counts)
    print()
    if report.manifest is None:
        print("No manifest: counts and checksums have nothing to be compared with.")
    for damage in report.damages:
        print(f"DAMAGE {damage}")
    if report.damages:
        print(f"{folder}: {len(report.damages)} faults. Rebuild: python -m data_prep --force ...")
        return 1
    checked = "framing, CRCs, features, labels"
    if report.manifest is not None:
        checked += ", counts, SHA-256, channel mean and deviation"
    print(f"{folder}: {report.records:,} records are sound ({checked}).")
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Draws the contact sheet."""
    from data_prep.commands import show as showing

    path = Path(arguments.out)
    showing.draw(Path(arguments.folder), arguments.split, path, arguments.count, arguments.seed)
    print(f"{path}: {arguments.split}, up to {arguments.count} images a class.")
    return 0
