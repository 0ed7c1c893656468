"""`download`: fetches a published archive."""

import argparse
import shlex
from pathlib import Path

from cifar10 import schema
from cifar10_program import DATA, started_as
from data_prep.commands.output import say
from data_prep.published.archives import ARCHIVES
from data_prep.published.fetch import fetch


def run(arguments: argparse.Namespace) -> int:
    """Fetches a published archive; returns the exit code."""
    archive = ARCHIVES[arguments.archive]
    path = fetch(archive, Path(arguments.out), arguments.url)
    say(f"{path}: {archive.bytes:,} bytes, SHA-256 as published.")
    source = shlex.quote(str(path))
    say(f"Next: {started_as(DATA)} --source {source} --out {schema.DEFAULT_DATA_DIR}")
    return 0
