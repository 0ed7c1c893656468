"""Ctrl-C and SIGTERM end a command by an exception, so that its temporary files are removed.

They wait while modules are loaded. An exception in there does not reach the command: numpy's C code
makes an ImportError of it.

This module imports almost nothing, since signals act by their defaults until `hold` is called.
"""

import signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(BaseException):
    """Raised on SIGTERM, as KeyboardInterrupt is on SIGINT."""


def hold() -> set[int]:
    """Makes both signals wait for `heed` or `restore`.

    Returns:
      The signals that waited before, for `restore`.
    """
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))


def heed() -> None:
    """Lets both signals act, those that have waited at once.

    Raises:
      KeyboardInterrupt: Ctrl-C has waited.
      Terminated: SIGTERM has waited, and `terminate` handles it.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def restore(before: set[int]) -> None:
    """Makes the signals wait that did so before `hold`, and no others."""
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def terminate(signum: int, frame: object) -> None:
    """Handles SIGTERM.

    Raises:
      Terminated: always.
    """
    raise Terminated
