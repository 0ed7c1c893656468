"""Signals: SIGTERM and Ctrl-C let training save and end. Standard library only."""

import os
import signal
from types import FrameType
from typing import Optional

from cifar10.errors import Stopped

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Remembers that a signal asked the run to end.

    The handlers only take a note, since a signal may come in the middle of a checkpoint; training
    looks at `requested` after each step. A second signal ends the process at once.
    """

    def __init__(self) -> None:
        self._signum: Optional[int] = None

    def install(self) -> None:
        """Takes SIGTERM and SIGINT over; call it in the main thread, before TensorFlow loads."""
        for signum in _SIGNALS:
            signal.signal(signum, self._note)

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self._signum is not None

    def check(self) -> None:
        """Raises Stopped if a signal came."""
        if self._signum is not None:
            raise Stopped(self._signum)

    def _note(self, signum: int, frame: Optional[FrameType]) -> None:
        if self._signum is not None:
            # Someone asks again: leave saving half done, which the next run can cope with.
            os._exit(128 + signum)
        self._signum = signum
