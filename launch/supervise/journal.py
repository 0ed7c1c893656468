"""Writes down what happens to the tasks of a job, from the changes of their states."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from launch.record import events
from launch.record.events import RunEvent, event
from launch.record.outcome import Cause, Outcome, words_for
from launch.record.run_folder import RunFolder
from launch.supervise.supervisor import TaskState

_OVER = ("ended", "failed", "quit")


@dataclass(frozen=True)
class _Seen:
    """What was known of a task at the last look.

    Attributes:
      status: its status.
      restarts: how often it was restarted.
      num_signals: how many signals it got since its last start.
    """

    status: str = "waiting"
    restarts: int = 0
    num_signals: int = 0


class Journal:
    """Writes events.jsonl of one run.

    Args:
      folder: the run's folder.
      states: task's name -> its state, which the decider changes.
    """

    def __init__(self, folder: RunFolder, states: Mapping[str, TaskState]) -> None:
        self._folder, self._states = folder, states
        self._seen = dict.fromkeys(states, _Seen())
        self._names_lost_host = False

    def asked_to_stop(self, signum: int) -> None:
        """Writes that a signal asked for the job's end."""
        events.add(self._folder, [event("stop", f"{signal.Signals(signum).name} to the launcher")])

    def look(self, verdict: Optional[Outcome]) -> None:
        """Writes what has changed since the last look.

        Args:
          verdict: how the job ends, as far as that is known; it is the reason of signals.
        """
        of_tasks: list[list[RunEvent]] = []
        lost: dict[str, str] = {}
        for name, state in self._states.items():
            now = _Seen(state.status, state.restarts, len(state.signals))
            if now != self._seen[name]:
                of_tasks.append(_changes(name, state, self._seen[name], verdict))
                self._seen[name] = now
                if state.cause is Cause.HOST_LOST and state.status in (*_OVER, "restarting"):
                    lost[state.task.host.name] = state.last
        found = [event("host lost", why, host=host) for host, why in lost.items()]
        is_lost = verdict is not None and verdict.cause is Cause.HOST_LOST
        if verdict is not None and is_lost and not found and not self._names_lost_host:
            found = [event("host lost", verdict.reason)]  # Kubernetes names a pod's node at most
        self._names_lost_host = self._names_lost_host or bool(found)
        # A task that ended by itself comes before the tasks that were asked to end for that.
        for changes in sorted(of_tasks, key=lambda some: any(e.what == "signal" for e in some)):
            found += changes
        if found:
            events.add(self._folder, found)


def run_ends(folder: RunFolder, outcome: Outcome) -> None:
    """Writes how the whole run ended; after an attempt, it may go on with other ports."""
    events.add(folder, [event("run ends", outcome.reason, exit_code=outcome.exit_code)])


def _changes(
    name: str, state: TaskState, before: _Seen, verdict: Optional[Outcome]
) -> list[RunEvent]:
    """Returns what has happened to one task, in this order."""
    host, found = state.task.host.name, []
    is_new = state.status in ("starting", "running") and before.status not in (
        "starting",
        "running",
    )
    if is_new:
        again = f"restart {state.restarts}" if state.restarts else ""
        found.append(event("start", again, name, host))
    why = f": {verdict.reason}" if verdict is not None else ""
    for signum in state.signals[0 if is_new else before.num_signals :]:
        found.append(event("signal", f"{signal.Signals(signum).name}{why}", name, host))
    has_run = before.status not in ("waiting", *_OVER) or is_new
    if state.status in _OVER and has_run and before.status != "restarting":
        found.append(event("end", _end_of(state), name, host))
    if state.status == "restarting" and before.status != "restarting":
        found.append(event("restart", _end_of(state), name, host))
    return found


def _end_of(state: TaskState) -> str:
    return state.last or ("" if state.code is None else words_for(state.code))
