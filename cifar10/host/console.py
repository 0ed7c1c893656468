"""Lines for people; a closed pipe does not end the run. Standard library only."""

import sys

from cifar10_program.streams import discard
from cifar10_program.streams import one_line as one_line


def say(text: str) -> None:
    """Prints a line and flushes it; once a pipe's reader has ended (`| head`), discards output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard(sys.stdout)
