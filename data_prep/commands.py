"""The commands of `python -m data_prep`, and what they print.

Each takes the flags that `cli` has parsed, and returns the exit code.
"""

import argparse
import shlex
import time
from pathlib import Path
from typing import Optional

from cifar10 import schema
from cifar10_program import DATA, TRAIN, started_as
from cifar10_program.streams import columns_of, one_line, padded
from data_prep import sheet
from data_prep.download import ARCHIVES, fetch
from data_prep.folder import build, manifest
from data_prep.folder import verify as checks
from data_prep.sources import detect, synthetic


def convert(flags: argparse.Namespace) -> int:
    """Builds the records unless they are up to date."""
    started = time.monotonic()
    out = Path(flags.out)
    chosen = {name: getattr(flags, name) for name in ("resize", "eval_fraction", "labels")}
    source = detect.find(flags.source, flags.seed, flags.synthetic_size, **chosen)
    options = manifest.Options(flags.validation_size, flags.shards, **chosen)
    report = build.build(source, out, options, flags.seed, flags.force, _say)
    if report is None:
        _say(f"{out} is up to date with {source.name}: nothing to do (--force rebuilds).")
        return 0
    _say("")
    if report.manifest is not None:
        _say(_origin(report.manifest.source, options.resize))
    _print_counts(report)
    _say(f"Written and verified in {time.monotonic() - started:.1f} s: {out}")
    _say(f"Next: {started_as(TRAIN)} --data-dir {shlex.quote(str(out))} --train-batch-size=128")
    return 0


def download(flags: argparse.Namespace) -> int:
    """Fetches a published archive."""
    archive = ARCHIVES[flags.archive]
    path = fetch(archive, Path(flags.out), flags.url)
    _say(f"{path}: {archive.bytes:,} bytes, SHA-256 as published.")
    source = shlex.quote(str(path))
    _say(f"Next: {started_as(DATA)} --source {source} --out {schema.DEFAULT_DATA_DIR}")
    return 0


def verify(flags: argparse.Namespace) -> int:
    """Checks a folder of records.

    Damage is printed to stdout, not stderr, since it is the result of this command.
    """
    folder = Path(flags.folder)
    report = checks.verify(folder)
    _print_counts(report)
    if report.manifest is None:
        _say("No manifest: counts and checksums have nothing to be compared with.")
    for damage in report.damages:
        _say(f"DAMAGE {damage}")
    if report.damages:
        _say(f"{folder}: {len(report.damages)} faults. Rebuild: {started_as(DATA)} --force ...")
        return 1
    checked = "framing, CRCs, features, labels"
    if report.manifest is not None:
        checked += ", counts, SHA-256, channel mean and deviation"
    records = sum(map(sum, report.label_counts.values()))
    _say(f"{folder}: {records:,} records are undamaged ({checked}).")
    return 0


def show(flags: argparse.Namespace) -> int:
    """Draws a contact sheet."""
    path = Path(flags.out)
    unwritten = sheet.draw(Path(flags.folder), flags.split, path, flags.count, flags.seed)
    _say(f"{path}: {flags.split}, up to {flags.count} images a class.")
    if unwritten:
        names = ", ".join(unwritten)
        _say(f"Shown by their numbers, since no font here has the letters: {names}.")
        _say("A font such as Noto Sans CJK, installed or in ~/.fonts, has those of Chinese.")
    return 0


def _say(line: str) -> None:
    """Prints a line; names from files and folders in it cannot write on the terminal."""
    print(one_line(line), flush=True)


def _print_counts(report: checks.Report) -> None:
    """Prints the number of images of each split, and of each class within it."""
    counts = report.label_counts
    _say("")
    width = max(12, *map(columns_of, report.class_names))
    _say(" " * width + "".join(f"{split:>12}" for split in counts))
    rows = [*zip(report.class_names, *counts.values()), ("all", *map(sum, counts.values()))]
    for name, *numbers in rows:
        _say(padded(one_line(name), width) + "".join(f"{number:12,}" for number in numbers))
    _say("")


def _origin(source: manifest.Origin, resize: Optional[str]) -> str:
    if source.kind == synthetic.KIND:
        return "Synthetic: ten drawn shapes, not CIFAR-10; accuracy says nothing about CIFAR-10."
    note = "" if resize is None else f", --resize {resize} for images of other sizes than 32x32"
    if source.kind.startswith("cifar-10-"):
        is_published = source.fingerprint in (archive.sha256 for archive in ARCHIVES.values())
        by = "the published archive, by its SHA-256"
        note = f", {by}" if is_published else ", not byte for byte the published archive"
    return f"Source: {source.name} ({source.kind}{note})"
