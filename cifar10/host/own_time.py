"""A clock that stands still while this process does. Standard library only.

A process can be stopped (SIGSTOP, or a machine that is suspended) and go on later. What it does
took no longer for that.
"""

import threading
import time
from typing import Optional


class OwnTime:
    """Counts the seconds for which this process has run.

    It knows only that nobody has asked it for the time. So a thread must ask regularly while the
    clock is to leave times out.

    Attributes:
      longest_gap: the longest time between two questions, in seconds, for which the process counts
        as running; None: any.
    """

    def __init__(self) -> None:
        self.longest_gap: Optional[float] = None
        self._last, self._own = time.monotonic(), 0.0
        self._lock = threading.Lock()

    def now(self) -> float:
        """Returns the seconds for which the process has run; any thread may ask."""
        with self._lock:
            now = time.monotonic()
            gap, self._last = now - self._last, now
            self._own += gap if self.longest_gap is None else min(gap, self.longest_gap)
            return self._own
