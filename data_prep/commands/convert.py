"""`convert`: builds a folder of checked records from a source."""

import argparse
import shlex
import time
from pathlib import Path

from cifar10_program import TRAIN, started_as
from data_prep.commands.output import print_counts, say
from data_prep.folder.build import build
from data_prep.folder.manifest import Manifest, Options
from data_prep.published.archives import ARCHIVES
from data_prep.sources import detect, synthetic

_PUBLISHED_NOTE = {
    True: "the published archive, by its SHA-256",
    False: "not byte for byte the published archive",
}


def run(arguments: argparse.Namespace) -> int:
    """Builds the records unless they are up to date; returns the exit code."""
    started = time.monotonic()
    out = Path(arguments.out)
    source = detect.find(
        arguments.source, arguments.seed, arguments.synthetic_size, arguments.resize
    )
    options = Options(arguments.validation_size, arguments.shards, arguments.seed, arguments.resize)
    result = build(source, out, options, arguments.force, say)
    if result.label_counts is None:
        say(f"{out} is up to date with {source.name}: nothing to do (--force rebuilds).")
        return 0
    _describe_source(result.manifest)
    print_counts(result.manifest.class_names, result.label_counts)
    say(f"Written and verified in {time.monotonic() - started:.1f} s: {out}")
    place = shlex.quote(str(out))
    say(f"Next: {started_as(TRAIN)} --data-dir {place} --train-batch-size=128")
    return 0


def _describe_source(manifest: Manifest) -> None:
    say("")
    if manifest.kind == synthetic.KIND:
        say("Synthetic: ten drawn shapes, made here. This is not CIFAR-10, and accuracy on it")
        say("says nothing about CIFAR-10.")
        return
    note = ""
    if manifest.kind in (archive.kind for archive in ARCHIVES.values()):
        published = manifest.fingerprint in (archive.sha256 for archive in ARCHIVES.values())
        note = f", {_PUBLISHED_NOTE[published]}"
    if manifest.options.resize is not None:
        note = f", --resize {manifest.options.resize} for images of other sizes than 32x32"
    say(f"Source: {manifest.name} ({manifest.kind}{note})")
