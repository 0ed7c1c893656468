"""Downloads CIFAR-10 and converts it: `python generate_cifar10_tfrecords.py --data-dir=DIR`.

The command of tensorflow/models' cifar10_estimator, for its scripts; it does what
`python -m data_prep download` and `python -m data_prep --source ARCHIVE` do in one folder.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Optional

from cifar10_program.streams import open_streams
from data_prep import cli

_ARCHIVE = "cifar-10-python.tar.gz"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Downloads the archive unless it is there, converts it, and returns the exit code.

    Args:
      argv: the arguments after the program's name; None: those of this process.
    """
    open_streams()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--data-dir",
        "--data_dir",
        default="",
        metavar="DIR",
        help="folder for the archive and the records (default: the current folder)",
    )
    folder = parser.parse_args(argv).data_dir or os.curdir
    archive = os.path.join(folder, _ARCHIVE)
    if not os.path.exists(archive):
        code = cli.main(["download", "--out", folder])
        if code:
            return code
    return cli.main(["--source", archive, "--out", folder])


if __name__ == "__main__":
    sys.exit(main())
