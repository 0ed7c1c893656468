"""Prints lines on standard output; a closed pipe does not end the run."""

import os
import sys


def say(text: str) -> None:
    """Prints a line and flushes it; once a pipe's reader has ended (`| head`), discards output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
