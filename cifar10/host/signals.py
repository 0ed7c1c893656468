"""Signals: after SIGTERM or Ctrl-C, training saves and ends. Standard library only."""

import faulthandler
import os
import signal
import socket
import threading
import time
from typing import Callable, Optional

from cifar10.errors import Stopped
from cifar10.host.process_end import end_process

# Platforms wait at least 10 s, as `docker stop` does, before they kill a process.
STAY_SECS = 8.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SAME_SECS = 1.0


class StopRequest:
    """Records that a signal asked the run to end.

    A signal is only recorded, since it may arrive while a checkpoint is being written; training
    reads `requested` after each step. A second signal ends the process immediately, unless it
    arrives within a second of the first: a platform and the launcher may both send the same signal.

    A thread records the signal: Python runs handlers in the main thread only, which does not return
    from TensorFlow while it waits there for another task's gradients.

    Args:
      most_secs: the process ends so many seconds after a signal, whatever it does; None: it has as
        much time as it needs, for example to save.
    """

    def __init__(self, most_secs: Optional[float] = None) -> None:
        self._most_secs = most_secs
        self._signum: Optional[int] = None
        self._since = 0.0

    def install(self) -> None:
        """Starts handling SIGTERM and SIGINT; SIGUSR1 prints each thread's stack to stderr.

        A signal that this process ignores, such as SIGINT in the background of a script, stays
        ignored. Call this in the main thread, before TensorFlow loads.
        """
        # At once, whatever the threads wait for.
        faulthandler.register(signal.SIGUSR1)
        noted, signalled = socket.socketpair()
        signalled.setblocking(False)
        # Python's C-level handler writes the signal's number to this descriptor, even while the
        # main thread is inside TensorFlow.
        signal.set_wakeup_fd(signalled.detach(), warn_on_full_buffer=False)
        for signum in _SIGNALS:
            # The thread handles the signal, but without a handler here, the default action would
            # apply.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, lambda signum, frame: None)
        threading.Thread(target=self._listen, args=(noted,), daemon=True).start()

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._signum is not None

    def check(self) -> None:
        """Raises Stopped if a signal has arrived."""
        if self._signum is not None:
            raise Stopped(self._signum)

    @property
    def secs(self) -> float:
        """Seconds since the first signal arrived; 0 before that."""
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
            if self._most_secs is not None:
                last = (str(Stopped(signum)), 128 + signum)
                timer = threading.Timer(self._most_secs, end_process, last)
                timer.daemon = True
                timer.start()
        elif self.secs > _SAME_SECS:
            # End immediately: the next run can continue even if a save is interrupted here.
            os._exit(128 + signum)


class Stay:
    """Decides how long a task that the master needs keeps running after a signal.

    A platform that ends a job signals all its tasks at the same time. To end its step and save, the
    master still needs its parameter servers, and the workers for whose gradients it waits. So these
    tasks run until the master has ended, but at most for STAY_SECS.

    Args:
      stop: record of the signal.
      is_master_here: function that returns whether the master answers.
    """

    def __init__(self, stop: StopRequest, is_master_here: Callable[[], bool]) -> None:
        self._stop, self._is_master_here = stop, is_master_here

    @property
    def is_over(self) -> bool:
        """Whether a signal arrived, and the master has ended or STAY_SECS are over."""
        if not self._stop.requested:
            return False
        return self._stop.secs > STAY_SECS or not self._is_master_here()

    def check(self) -> None:
        """Raises Stopped if the stay is over."""
        if self.is_over:
            self._stop.check()
