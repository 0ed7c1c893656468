"""Ends this process, whatever its threads do at the moment. Standard library only."""

import ctypes
import os
import signal
import sys
from typing import NoReturn

from cifar10.host.console import one_line

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_process(line: str, code: int) -> NoReturn:
    """Prints the last line on standard error and ends the process, whatever the main thread does.

    The process ends even if the line cannot be printed, for example into a file on a full disk:
    nobody else would end it.
    """
    try:
        # Names and addresses in it may be from another program.
        print(one_line(line), file=sys.stderr, flush=True)
    finally:
        leave(code)


def end_with(parent: int) -> None:
    """Makes the kernel send this process SIGTERM when its parent ends, whatever ended that.

    Only Linux does so; elsewhere, nothing happens.

    Args:
      parent: the process id of the parent, which has forked this process in its main thread.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # It ended before that.
        os.kill(os.getpid(), signal.SIGTERM)


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
