"""Ends this process from a thread beside the main one. Standard library only."""

import os
import sys
import threading
from typing import Callable

from cifar10.host.console import one_line

_ends = threading.Lock()


def end_process(words: Callable[[], str], code: int) -> None:
    """Prints the last line on standard error and ends the process, whatever the main thread does.

    Several threads may notice the same trouble: the first one ends the process, and the others wait
    here for that, so that they do not interrupt its work. The process ends even if the line cannot
    be printed, for example into a file on a full disk: nobody else would end it.

    Args:
      words: function that does the last work, such as saving, and returns the line to print.
      code: the exit code.
    """
    with _ends:
        try:
            # Names and addresses in it may be from another program.
            print(one_line(words()), file=sys.stderr, flush=True)
            sys.stdout.flush()
        finally:
            os._exit(code)
