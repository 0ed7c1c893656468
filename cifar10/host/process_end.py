"""Ends this process, whatever its threads do at the moment. Standard library only."""

import contextlib
import os
import sys
import threading
from typing import NoReturn

from cifar10.host.console import one_line

_LAST_LINE_SECS = 2.0


def end_process(line: str, code: int) -> NoReturn:
    """Prints the last line on standard error and ends the process, whatever the main thread does.

    The process ends even if the line cannot be printed, for example into a file on a full disk, or
    into a terminal that is stopped by Ctrl-S: nobody else would end it.
    """
    last = threading.Thread(target=_print_last, args=(line,), daemon=True)
    last.start()
    last.join(_LAST_LINE_SECS)
    os._exit(code)


def _print_last(line: str) -> None:
    # AttributeError: a stream is closed since the process began.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        try:
            # Names and addresses in it may be from another program.
            print(one_line(line), file=sys.stderr, flush=True)
        finally:
            sys.stdout.flush()


def leave(code: int) -> NoReturn:
    """Ends the process in the main thread, without the end of Python's interpreter.

    A thread may be inside TensorFlow at that moment, for example because Python's garbage collector
    deletes a session there. The end of the interpreter would then abort the process.

    Args:
      code: the exit code.
    """
    try:
        sys.stdout.flush()
    finally:  # Though nobody reads it any more, or it is closed.
        os._exit(code)
