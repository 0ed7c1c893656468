"""Lines on standard output that never end a run."""

import os
import sys


def say(text: str) -> None:
    """Prints a line at once; after the reader has gone (`| head`), discards what is printed."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
