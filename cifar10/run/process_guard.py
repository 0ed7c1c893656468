"""Ends this process if tasks that it needs are missing or belong to another job.

Standard library only.
"""

import functools
import threading
from collections.abc import Sequence
from typing import Callable, Optional

from cifar10.cluster.liveness import LivenessMonitor
from cifar10.errors import Stopped
from cifar10.host.process_end import end_process

_PERIOD_SECS = 1.0
_USERS_MISTAKE = 2  # An exit code: a task belongs to another job.
_LAST_WORDS_SECS = 2.0  # Time for the main thread to end by itself.


class ProcessGuard:
    """Ends this process for reasons that a monitor of other tasks finds, until that is stopped.

    Threads do it because the main thread may wait inside TensorFlow, where nothing can interrupt
    it. A run that ends this way can continue from its last checkpoint.

    Args:
      monitor: knows which tasks answer.
    """

    def __init__(self, monitor: LivenessMonitor) -> None:
        self._monitor = monitor

    def end_without(
        self,
        labels: Sequence[str],
        at_least: Optional[int] = None,
        is_over: Callable[[], bool] = lambda: False,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        """Starts a thread that ends this process with exit code 1 if too many tasks are missing.

        The exit code is 2 if they are missing since their addresses lead to another job.

        Args:
          labels: labels of the tasks to check.
          at_least: number of these tasks that are needed; None: all.
          is_over: function that returns whether training is over; called when a task does not
            answer. If it returns true, the process ends with exit code 0 instead.
          is_needed: function that returns whether the tasks are needed at the moment; those that
            are missing at other times do not end the process.
        """

        def missing() -> Optional[str]:
            return self._monitor.missing(labels, at_least) if is_needed() else None

        def guard() -> None:
            while not self._monitor.stopped.wait(_PERIOD_SECS):
                if any(self._monitor.is_silent(one, 0) for one in labels) and is_over():
                    self._end(lambda: "training is over; the others have gone", 0)
                if self._monitor.wrong(labels, at_least):
                    self._end(lambda: self._monitor.wrong(labels, at_least), _USERS_MISTAKE)
                if missing():
                    # A task that answers again meanwhile is not missing any more. So this process
                    # goes on after it was stopped itself, when all answers seem old at first.
                    self._end(missing, 1)

        threading.Thread(target=guard, daemon=True).start()

    def end_when(self, check: Callable[[], None]) -> None:
        """Starts a thread that ends this process when `check` raises Stopped."""

        def guard() -> None:
            while not self._monitor.stopped.wait(_PERIOD_SECS / 4):
                try:
                    check()
                except Stopped as stopped:
                    self._end(functools.partial(str, stopped), 128 + stopped.signum)

        threading.Thread(target=guard, daemon=True).start()

    def _end(self, reason: Callable[[], Optional[str]], code: int) -> None:
        """Ends the process, unless the main thread ends by itself meanwhile.

        Args:
          reason: function that returns the message, or None if there is no reason any more.
          code: the exit code.
        """
        if self._monitor.stopped.wait(_LAST_WORDS_SECS):
            return
        message = reason()
        if message:
            begin = {1: "training failed: ", _USERS_MISTAKE: "error: "}.get(code, "")
            end_process(lambda: f"{begin}{message}", code)
