"""Lines for people; a closed pipe does not end the run. Standard library only."""

import sys

from cifar10_program.streams import discard


def say(text: str) -> None:
    """Prints a line and flushes it; once a pipe's reader has ended (`| head`), discards output."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard(sys.stdout)


def one_line(message: str) -> str:
    """Returns a message as one printable line, since names and files may hold any character."""
    return "".join(c if c.isprintable() else " " for c in message)
