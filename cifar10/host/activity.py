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


class Activity:
    """The phase of the main thread. The main thread notes each beginning; other threads read.

    Attributes:
      phase: the current phase; None: a wait that has a time limit of its own, or nothing watched.
      count: how many beginnings have been noted; it grows as long as there is progress.
      longest: phase -> the longest time between its beginning and the next one, in seconds.
      time: the clock for that; a thread that watches makes it leave out standstills.
    """

    def __init__(self) -> None:
        self.phase: Optional[str] = None
        self.count = 0
        self.longest: dict[str, float] = {}
        self.time = OwnTime()
        self._since = self.time.now()

    def begin(self, phase: Optional[str]) -> None:
        """Notes that a phase begins, or the next part of the same one, such as a batch."""
        now = self.time.now()
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


class OwnTime:
    """Counts the seconds for which this process has run.

    A process can be stopped (SIGSTOP, or a machine that is suspended) and go on later. All time
    counts at first. To leave standstills out, a thread must ask for the time regularly, since the
    clock knows only that nobody has asked.
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
