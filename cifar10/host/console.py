"""Lines for people; a closed pipe does not end the run. Standard library only."""

import os
import sys


def say(text: str) -> None:
    """Prints a line and flushes it; once a pipe's reader has ended (`| head`), discards output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(message: str) -> str:
    """Returns a message as one printable line, since names and files may hold any character."""
    return "".join(c if c.isprintable() else " " for c in message)
