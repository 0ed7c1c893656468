"""The end of a job: which tasks are asked to end, in which order, and when they are killed."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from launch.supervise.actions import Action, Note, Signal

KILL_SECS = 5.0  # after SIGKILL, for the kernel and for the connection to the host

_Names = Callable[..., list[str]]  # the task types -> the names of the tasks of these types


@dataclass
class _Stage:
    """A stage of the end: the tasks that are to end next.

    Attributes:
      tasks: the names of the tasks.
      signum: the signal to send to the tasks; None if they end by themselves.
      secs: the seconds that the tasks have to end; those left are for the next stage.
      saves: whether the tasks save in this time.
      why: words to tell the user about the tasks that get the signal; "" to say nothing.
      since: the time at which the stage began; None before.
    """

    tasks: Sequence[str]
    signum: Optional[int]
    secs: float
    saves: bool = False
    why: str = ""
    since: Optional[float] = None


def _ask_then_kill(tasks: Sequence[str], secs: float, *, saves: bool = False) -> list[_Stage]:
    return [
        _Stage(tasks, signal.SIGTERM, secs, saves),
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
                *_ask_then_kill(names("master", "chief"), secs, saves=True),
                *_ask_then_kill(names("worker", "evaluator"), secs, saves=True),
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

    def allow(self, secs: float) -> None:
        """Gives the tasks that are asked to save `secs` for it, counted from their SIGTERM."""
        for stage in self._stages:
            if stage.saves:
                stage.secs = secs

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
