"""`python -m data_prep` and the command `cifar10-data`."""

import sys

from data_prep import signals


def run() -> int:
    """Runs the command line of this process and returns its exit code."""
    # From here to the exit of the process, signals act only where `main` can answer them.
    signals.hold()
    from data_prep.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
