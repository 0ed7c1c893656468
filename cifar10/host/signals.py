"""Signals: SIGTERM and Ctrl-C let training save and end. Standard library only."""

import os
import signal
import socket
import threading
import time
from typing import Callable, Optional

from cifar10.errors import Stopped

# This is shorter than what any platform waits before it kills: `docker stop`, the shortest, 10 s.
STAY_SECS = 8.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SAME_SECS = 1.0


class StopRequest:
    """Remembers that a signal asked the run to end.

    A signal is only noted, since it may come in the middle of a checkpoint; training looks at
    `requested` after each step. A second signal ends the process at once, unless it comes within a
    second, as when a platform and the launcher both send it to each process of a task.

    A thread takes the note: Python runs handlers in the main thread only, and that one does not
    return from TensorFlow while it waits there for another task's gradients.
    """

    def __init__(self) -> None:
        self._signum: Optional[int] = None
        self._since = 0.0

    def install(self) -> None:
        """Handles SIGTERM and SIGINT; call it in the main thread, before TensorFlow loads."""
        noted, signalled = socket.socketpair()
        signalled.setblocking(False)
        # Python's own handler of a signal writes its number there, whatever the main thread does.
        signal.set_wakeup_fd(signalled.detach(), warn_on_full_buffer=False)
        for signum in _SIGNALS:
            # The thread does the work, but without a handler the signal would end the process.
            signal.signal(signum, lambda signum, frame: None)
        threading.Thread(target=self._listen, args=(noted,), daemon=True).start()

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self._signum is not None

    def check(self) -> None:
        """Raises Stopped if a signal came."""
        if self._signum is not None:
            raise Stopped(self._signum)

    @property
    def secs(self) -> float:
        """Seconds since the signal came; 0 without one."""
        return 0.0 if self._signum is None else time.monotonic() - self._since

    def _listen(self, noted: socket.socket) -> None:
        with noted:
            while numbers := noted.recv(64):
                for signum in numbers:
                    if signum in _SIGNALS:
                        self._note(signum)

    def _note(self, signum: int) -> None:
        if self._signum is None:
            self._since = time.monotonic()
            self._signum = signum
        elif self.secs > _SAME_SECS:
            # A second request: end at once. The next run can go on after half a save.
            os._exit(128 + signum)


class Stay:
    """How long a task that the master needs stays after a signal: until the master has gone.

    A platform that ends a job sends the signal to all of its tasks at once. The master saves first,
    which it cannot do without its parameter servers, nor end its step without those whose gradients
    it waits for.

    Args:
      stop: says whether a signal came.
      is_master_here: whether the master answers.
    """

    def __init__(self, stop: StopRequest, is_master_here: Callable[[], bool]) -> None:
        self._stop, self._is_master_here = stop, is_master_here

    @property
    def is_over(self) -> bool:
        """Whether a signal came and the task may go: the master has, or takes too long."""
        if not self._stop.requested:
            return False
        return self._stop.secs > STAY_SECS or not self._is_master_here()

    def check(self) -> None:
        """Raises Stopped if the stay is over."""
        if self.is_over:
            self._stop.check()
