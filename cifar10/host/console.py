"""Lines on standard output that never end a run; silence on standard error."""

import contextlib
import os
import sys
from collections.abc import Iterator


def say(text: str) -> None:
    """Prints a line at once; after the reader has gone (`| head`), discards what is printed."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def silence_native_code() -> Iterator[None]:
    """Discards what C++ code writes to standard error; exceptions are raised as usual."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
