"""Decides what to ask of Slurm until a job has ended, in whatever state the job is seen.

A job may start, end or return to the queue at any moment, also between a question to Slurm and the
request that follows from its answer. So a request is repeated until the job is over.
"""

import enum
import math
from typing import Optional

from launch.backends.slurm.commands import JobState

_AGAIN_SECS = 5.0  # between two requests to a job that stays as it is


class Wish(enum.IntEnum):
    """How urgently a job is to end."""

    NONE = 0
    SAVE = 1  # its tasks save first
    KILL = 2  # its tasks end at once
    CANCEL = 3  # Slurm ends it


class Request(enum.Enum):
    """A request to Slurm."""

    SIGTERM = "SIGTERM to the batch script"
    CANCEL = "cancellation"


class Pursuit:
    """The requests for the end of one job.

    Attributes:
      wish: how urgently the job is to end.
    """

    def __init__(self, wish: Wish = Wish.NONE) -> None:
        self.wish = wish
        self._num_asked = 0  # how often the batch script was asked since its start
        self._next_cancel = self._next_kill = -math.inf

    def due(self, state: JobState, now: float, *, has_written: bool = False) -> Optional[Request]:
        """Returns the request to make now; None if there is none.

        Call it after every new answer of Slurm, but not twice at once: two signals would count as
        one.

        Args:
          state: Slurm's last answer about the job.
          now: the time, by time.monotonic.
          has_written: whether the job has written its status since it was known to wait, which
            shows that it has started.
        """
        if self.wish is Wish.NONE or state.is_over:
            return None
        waits = state.is_pending and (self._num_asked > 0 or not has_written)
        if waits or self.wish is Wish.CANCEL:
            self._num_asked = 0
            if now < self._next_cancel:
                return None
            self._next_cancel = now + _AGAIN_SECS
            return Request.CANCEL
        if state.state == "COMPLETING":  # its script has ended; if it is requeued, another starts
            self._num_asked = 0
            return None
        if self._num_asked >= self.wish and (self.wish < Wish.KILL or now < self._next_kill):
            return None
        # The job may take a SIGTERM for one that Slurm has sent to all of its processes, so two of
        # them may be too few to kill its tasks. More than two do no harm.
        self._num_asked += 1
        self._next_kill = now + _AGAIN_SECS
        return Request.SIGTERM
