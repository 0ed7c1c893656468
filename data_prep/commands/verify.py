"""`verify`: checks a folder of records."""

import argparse
from pathlib import Path

from cifar10_program import DATA, started_as
from data_prep.commands.output import print_counts, say
from data_prep.folder.verify import verify


def run(arguments: argparse.Namespace) -> int:
    """Checks a folder and returns the exit code.

    Damage is printed to stdout, not stderr, since it is the result of this command.
    """
    folder = Path(arguments.folder)
    report = verify(folder)
    print_counts(report.class_names, report.label_counts)
    if report.manifest is None:
        say("No manifest: counts and checksums have nothing to be compared with.")
    for damage in report.damages:
        say(f"DAMAGE {damage}")
    if report.damages:
        again = f"{started_as(DATA)} --force ..."
        say(f"{folder}: {len(report.damages)} faults. Rebuild: {again}")
        return 1
    checked = "framing, CRCs, features, labels"
    if report.manifest is not None:
        checked += ", counts, SHA-256, channel mean and deviation"
    say(f"{folder}: {report.records:,} records are undamaged ({checked}).")
    return 0
