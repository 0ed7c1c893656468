"""The end of a job: which tasks are asked to end, in which order, and which report says why.

One failure causes others: a parameter server that ends makes its trainers fail, and a platform that
stops everything may report it after its first victims have ended. So the first report decides only
that the job ends. For a moment, later reports may replace its cause and its words.
"""

import enum
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from launch.record.outcome import Cause, Outcome

KILL_SECS = 5.0  # after SIGKILL, for the kernel and for the connection to the host

_Names = Callable[..., list[str]]  # the task types -> the names of the tasks of these types


@dataclass(frozen=True)
class Start:
    """The action that starts a task."""

    task: str


@dataclass(frozen=True)
class Signal:
    """The action that sends a signal to a task."""

    task: str
    signum: int


@dataclass(frozen=True)
class Note:
    """The action that shows a line of text to the user."""

    text: str


Action = Union[Start, Signal, Note]


@dataclass
class _Stage:
    """A stage of the end: the tasks that are to end next.

    Attributes:
      tasks: the names of the tasks.
      signum: the signal to send to the tasks; None if they end by themselves.
      secs: the seconds that the tasks have to end; those left are for the next stage.
      why: words to tell the user about the tasks that get the signal; "" to say nothing.
      since: the time at which the stage began; None before.
    """

    tasks: Sequence[str]
    signum: Optional[int]
    secs: float
    why: str = ""
    since: Optional[float] = None


def _ask_then_kill(tasks: Sequence[str], secs: float) -> list[_Stage]:
    return [
        _Stage(tasks, signal.SIGTERM, secs),
        _Stage(tasks, signal.SIGKILL, KILL_SECS, why="did not end in time: killed"),
    ]


class Ending:
    """The remaining stages of the end of one job."""

    def __init__(self, stages: Sequence[_Stage]) -> None:
        self._stages = list(stages)

    @classmethod
    def in_order(cls, names: _Names, secs: float) -> "Ending":
        """Ends the lead first, so that it saves while the others still run, and the ps last.

        Args:
          names: returns the names of the tasks of the given types.
          secs: the seconds that trainers have between SIGTERM and SIGKILL.
        """
        return cls(
            [
                *_ask_then_kill(names("master", "chief"), secs),
                *_ask_then_kill(names("worker", "evaluator"), secs),
                *_ask_then_kill(names("ps"), min(secs, KILL_SECS)),
            ]
        )

    @classmethod
    def after_the_lead(cls, names: _Names, grace_secs: float, stop_secs: float) -> "Ending":
        """Lets the others end by themselves for `grace_secs` before it asks them to end."""
        others = names("worker", "evaluator")
        return cls(
            [
                _Stage(others, None, grace_secs),
                *_ask_then_kill(others, stop_secs),
                *_ask_then_kill(names("ps"), KILL_SECS),
            ]
        )

    @classmethod
    def at_once(cls, tasks: Sequence[str]) -> "Ending":
        """Kills all tasks."""
        return cls([_Stage(tasks, signal.SIGKILL, 2 * KILL_SECS)])

    @property
    def is_over(self) -> bool:
        """Whether no stage is left."""
        return not self._stages

    def advance(self, now: float, is_alive: Callable[[str], bool]) -> list[Action]:
        """Starts stages, up to the first one whose tasks still run and have time left.

        Args:
          now: the time.
          is_alive: returns whether the task of that name may have a process.
        """
        actions: list[Action] = []
        while self._stages:
            stage = self._stages[0]
            alive = [name for name in stage.tasks if is_alive(name)]
            if stage.since is None:
                stage.since = now
                if stage.signum is not None:
                    actions += [Signal(name, stage.signum) for name in alive]
                if alive and stage.why:
                    actions.append(Note(f"{', '.join(alive)} {stage.why}"))
            if alive and now < stage.since + stage.secs:
                return actions
            if alive and stage.signum == signal.SIGKILL:
                actions.append(Note(f"{', '.join(alive)}: end not confirmed; run `clean`"))
            self._stages.pop(0)
        return actions


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
