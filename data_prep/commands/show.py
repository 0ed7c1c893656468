"""`show`: draws a contact sheet of a folder of records."""

import argparse
from pathlib import Path

from data_prep.commands.contact_sheet import draw


def run(arguments: argparse.Namespace) -> int:
    """Draws the contact sheet."""
    path = Path(arguments.out)
    draw(Path(arguments.folder), arguments.split, path, arguments.count, arguments.seed)
    print(f"{path}: {arguments.split}, up to {arguments.count} images a class.")
    return 0
