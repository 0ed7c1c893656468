"""Settles why a job ended, from reports that may arrive in any order.

One failure causes others: a parameter server that ends makes its trainers fail, and a platform that
stops everything may report it after its first victims have ended. So the first report decides only
that the job ends. For a moment, later reports may replace its cause and its words.
"""

import enum
import signal
from typing import Optional

from launch.record.outcome import Cause, Outcome

SETTLE_SECS = 2.0


class _Rank(enum.IntEnum):
    """How near to the first cause a report is; the smallest is nearest."""

    DONE = 0  # before any of this launcher's signals reached the lead
    USER = 1  # or a time limit, by which the user has asked for the end beforehand
    PLATFORM = 2
    TERMINATED = 3  # SIGTERM to the launcher: by the user, or by a platform that says so, too
    HOST_LOST = 4
    SIGNAL = 5
    EXIT_CODE = 6


_RANKS = {
    Cause.DONE: _Rank.DONE,
    Cause.USER: _Rank.USER,
    Cause.TIME_LIMIT: _Rank.USER,
    Cause.CANCELLED: _Rank.PLATFORM,
    Cause.PREEMPTED: _Rank.PLATFORM,
    Cause.PLATFORM: _Rank.PLATFORM,
    Cause.LAUNCHER: _Rank.PLATFORM,
    Cause.HOST_LOST: _Rank.HOST_LOST,
}


class Settling:
    """The reports about the end of one job, and what they say together.

    Args:
      secs: seconds after the first report during which later ones may replace it.

    Attributes:
      verdict: the outcome that the reports so far show; None before the first one.
    """

    def __init__(self, secs: float = SETTLE_SECS) -> None:
        self.verdict: Optional[Outcome] = None
        self._secs = secs
        self._since = 0.0

    def report(self, outcome: Outcome, now: float) -> bool:
        """Takes a report; returns whether it is now the verdict.

        A report replaces the verdict if it names a cause of higher rank and arrives in time. Do not
        report the ends of tasks that this launcher has signalled: it caused them.

        Args:
          outcome: how the job ends according to this report.
          now: the time of the report, in seconds.
        """
        if self.verdict is None:
            self._since = now
        elif self.is_settled(now) or _rank(outcome) >= _rank(self.verdict):
            return False
        self.verdict = outcome
        return True

    def is_settled(self, now: float) -> bool:
        """Returns whether the verdict is final: nothing replaces a success, or comes too late."""
        if self.verdict is None:
            return False
        return self.verdict.exit_code == 0 or now >= self._since + self._secs


def _rank(outcome: Outcome) -> _Rank:
    if outcome.cause is Cause.USER and outcome.exit_code == 128 + signal.SIGTERM:
        return _Rank.TERMINATED
    if outcome.cause in _RANKS:
        return _RANKS[outcome.cause]
    return _Rank.SIGNAL if outcome.exit_code > 128 else _Rank.EXIT_CODE
