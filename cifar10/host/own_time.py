"""A clock that stands still while this process does. Standard library only.

A process can be stopped (SIGSTOP, or a machine that is suspended) and go on later. What it does
took no longer for that.
"""

import threading
import time
from typing import Optional


class OwnTime:
    """Counts the seconds for which this process has run.

    All time counts at first. To leave standstills out, a thread must ask for the time regularly,
    since the clock knows only that nobody has asked.
    """

    def __init__(self) -> None:
        self._longest_gap: Optional[float] = None
        self._last, self._own = time.monotonic(), 0.0
        self._lock = threading.Lock()

    def count_gaps_up_to(self, secs: Optional[float]) -> None:
        """Sets the longest time between two questions that counts from now on; None: any."""
        self.now()
        self._longest_gap = secs

    def now(self) -> float:
        """Returns the seconds for which the process has run; any thread may ask."""
        with self._lock:
            now = time.monotonic()
            gap, self._last = now - self._last, now
            self._own += gap if self._longest_gap is None else min(gap, self._longest_gap)
            return self._own
