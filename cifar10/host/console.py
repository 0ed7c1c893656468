"""Lines for people; a closed pipe does not end the run. Standard library only."""

import sys

from cifar10_program.streams import discard
from cifar10_program.streams import one_line as one_line


def say(text: str) -> None:
    """Prints lines and flushes them; once a pipe's reader has ended (`| head`), discards output.

    Characters that terminals obey, such as those of names from files, become spaces.
    """
    try:
        print("\n".join(map(one_line, text.split("\n"))), flush=True)
    except BrokenPipeError:
        discard(sys.stdout)
