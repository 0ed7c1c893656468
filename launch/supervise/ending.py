"""The end of a job: which tasks are asked to end, in which order, and which report says why.

One failure causes others: a parameter server that ends makes its trainers fail, and a platform that
stops everything may report it after its first victims have ended. So the first report decides only
that the job ends. For a moment, later reports may replace its cause and its words, by their rank.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from launch.record.outcome import Cause, Outcome

KILL_SECS = 5.0  # after SIGKILL, for the kernel and for the connection to the host
SETTLE_SECS = 2.0


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
class Stage:
    """A stage of the end: the tasks that are to end next.

    Attributes:
      tasks: the names of the tasks.
      signum: the signal to send to the tasks; None if they end by themselves.
      secs: the seconds that the tasks have to end; those left are for the next stage.
      since: the time at which the stage began; None before.
    """

    tasks: Sequence[str]
    signum: Optional[int]
    secs: float
    since: Optional[float] = None


def ask_then_kill(tasks: Sequence[str], secs: float) -> list[Stage]:
    """Returns the stages that leave tasks `secs` seconds between SIGTERM and SIGKILL."""
    return [Stage(tasks, signal.SIGTERM, secs), Stage(tasks, signal.SIGKILL, KILL_SECS)]


def advance(stages: list[Stage], now: float, is_alive: Callable[[str], bool]) -> list[Action]:
    """Starts stages, up to the first one whose tasks still run and have time left.

    Args:
      stages: the remaining stages, from which this removes those that are over.
      now: the time.
      is_alive: returns whether the task of that name may have a process.
    """
    actions: list[Action] = []
    while stages:
        stage = stages[0]
        alive = [name for name in stage.tasks if is_alive(name)]
        if stage.since is None:
            stage.since = now
            if stage.signum is not None:
                actions += [Signal(name, stage.signum) for name in alive]
            if alive and stage.signum == signal.SIGKILL:
                actions.append(Note(f"{', '.join(alive)} still running: killed"))
        if alive and now < stage.since + stage.secs:
            break
        if alive and stage.signum == signal.SIGKILL:
            actions.append(Note(f"{', '.join(alive)}: end not confirmed; run `clean`"))
        stages.pop(0)
    return actions


_RANKS = {
    Cause.DONE: 0,  # before any of this launcher's signals reached the lead
    Cause.USER: 1,
    Cause.TIME_LIMIT: 1,  # by which the user has asked for the end beforehand
    Cause.CANCELLED: 2,
    Cause.PREEMPTED: 2,
    Cause.PLATFORM: 2,
    Cause.LAUNCHER: 2,
    Cause.HOST_LOST: 4,
}
_TERMINATED = 3  # SIGTERM to the launcher: by the user, or by a platform that says so, too
_BY_SIGNAL, _EXIT_CODE = 5, 6  # of a task


def rank(outcome: Outcome) -> int:
    """Returns how near to the first cause a report is that says this; the smallest is nearest."""
    if outcome.cause is Cause.USER and outcome.exit_code == 128 + signal.SIGTERM:
        return _TERMINATED
    if outcome.cause in _RANKS:
        return _RANKS[outcome.cause]
    return _BY_SIGNAL if outcome.exit_code > 128 else _EXIT_CODE
