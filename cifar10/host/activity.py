"""What the main thread does at the moment, for threads that watch it. Standard library only."""

import threading
import time
from typing import Optional

# The phases in the words of messages, which say "no progress in PHASE".
START = "the start of training"
FIRST_STEP = "the first training step"
STEP = "a training step"
BETWEEN = "the work between two training steps"
SAVING = "saving a checkpoint"
EVALUATION = "an evaluation"

STEPS = (FIRST_STEP, STEP)
FIRST = (START, FIRST_STEP)  # These build graphs and fill buffers, so they take longer.
_LONGEST_GAP_SECS = 2.0  # between two questions for the time; the watchdog asks more often


class Activity:
    """The phase of the main thread. The main thread notes each beginning; other threads read.

    Attributes:
      phase: the current phase; None: a wait that has a time limit of its own, or nothing watched.
      count: how many beginnings have been noted; it grows as long as there is progress.
      longest: phase -> the longest time between its beginning and the next one, in seconds.
    """

    def __init__(self) -> None:
        self.phase: Optional[str] = None
        self.count = 0
        self.longest: dict[str, float] = {}
        self._asked, self._own_secs, self._lock = time.monotonic(), 0.0, threading.Lock()
        self._since = 0.0

    def begin(self, phase: Optional[str]) -> None:
        """Notes that a phase begins, or the next part of the same one, such as a batch."""
        now = self.now()
        if self.phase is not None:
            taken = now - self._since
            self.longest[self.phase] = max(taken, self.longest.get(self.phase, 0.0))
        self._since = now
        self.phase = phase
        self.count += 1

    @property
    def is_in_step(self) -> bool:
        """Whether the main thread is inside a training step."""
        return self.phase in STEPS

    def now(self) -> float:
        """Returns the seconds for which the process has run; the watchdog asks all the time.

        While the process stands still (SIGSTOP, or a machine that is suspended), nobody asks: such
        a gap does not count.
        """
        with self._lock:
            asked = time.monotonic()
            self._own_secs += min(asked - self._asked, _LONGEST_GAP_SECS)
            self._asked = asked
            return self._own_secs
