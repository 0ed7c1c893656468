"""What is told of every task: in the table, the status file, events.jsonl and after a failure."""

import collections
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from launch.record import events
from launch.record.events import RunEvent, event
from launch.record.outcome import Cause, Outcome, end_record, words_for
from launch.record.output import Progress, read_progress, read_saved
from launch.record.run_folder import RunFolder
from launch.screen.row import Row
from launch.supervise.supervisor import TaskState

_LAST_LINES = 12
_ALIVE, _OVER = ("starting", "running"), ("ended", "failed")


class TaskStatusTable:
    """Combines the tasks' output with their states.

    Args:
      states: task's name -> its state, which the decider changes.
    """

    def __init__(self, states: "dict[str, TaskState]") -> None:
        self._states = states
        self._progress: dict[str, Progress] = {}
        self._saved: dict[str, str] = {}  # task's name -> the checkpoint that it saved at its end
        self._lines = {name: collections.deque[str](maxlen=_LAST_LINES) for name in states}

    def take(self, name: str, lines: Sequence[str]) -> bool:
        """Records a task's lines; returns whether one of them reports a training step."""
        self._lines[name].extend(lines)
        for line in lines:
            saved = read_saved(line)
            if saved is not None:
                self._saved[name] = saved
        for line in reversed(lines):
            progress = read_progress(line)
            if progress is not None:
                self._progress[name] = progress
                return True
        return False

    def last_lines(self, name: str) -> list[str]:
        """Returns the last lines that a task wrote, without empty ones."""
        return [line for line in self._lines[name] if line.strip()]

    def saved(self) -> Optional[str]:
        """Returns the checkpoint that the lead saved when it was stopped; None if there is none."""
        leads = (name for name, state in self._states.items() if state.task.is_lead)
        return next((self._saved[name] for name in leads if name in self._saved), None)

    def rows(self) -> list[Row]:
        """Returns the rows of the table, one for each task."""
        return [self._row(name, state) for name, state in self._states.items()]

    def status(self, outcome: Optional[Outcome] = None) -> dict[str, Any]:
        """Returns the content of the status file."""
        return {
            "time": time.time(),
            **end_record(outcome),
            "tasks": [vars(row) for row in self.rows()],
        }

    def _row(self, name: str, state: TaskState) -> Row:
        progress = self._progress.get(name)
        step, rate = "", ""
        if progress is not None:
            total = "" if progress.total is None else f"/{progress.total:,}"
            step, rate = f"{progress.step:,}{total}", progress.images_per_sec
        words = _words(state)
        return Row(name, state.task.host.name, words, step, rate, self._last(name, state, words))

    def _last(self, name: str, state: TaskState, words: str) -> str:
        """Returns why a task ended or waits, what it saved, or its last line."""
        lines = self.last_lines(name)
        if words == "stopped" and state.code != -signal.SIGKILL:
            return f"saved {self._saved[name]}" if name in self._saved else ""
        is_explained = words not in ("running", "done", "stopping") and state.last
        return state.last if is_explained else lines[-1] if lines else ""


def _words(state: TaskState) -> str:
    if state.status == "ended" and state.code != 0:
        by_signal = any(state.code in (-signum, 128 + signum) for signum in state.signals)
        return "stopped" if by_signal else "ended"
    if state.status == "ended":
        return "done"
    if state.alive and state.signals:
        return "stopping"
    if state.restarts and state.status == "running":
        return f"running ({state.restarts} restarts)"
    return state.status


class Journal:
    """Writes events.jsonl of one run, from the changes of its tasks' states.

    Args:
      folder: the run's folder.
      states: task's name -> its state, which the decider changes.
    """

    def __init__(self, folder: RunFolder, states: Mapping[str, TaskState]) -> None:
        self._folder, self._states = folder, states
        # Task's name -> (status, number of restarts, number of signals) at the last look.
        self._seen = dict.fromkeys(states, ("waiting", 0, 0))
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
            before = self._seen[name]
            self._seen[name] = now = (state.status, state.restarts, len(state.signals))
            if now != before:
                of_tasks.append(_changes(name, state, before, verdict))
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
    name: str, state: TaskState, before: tuple[str, int, int], verdict: Optional[Outcome]
) -> list[RunEvent]:
    """Returns what has happened to one task, in this order."""
    found = []
    status, _, num_signals = before
    is_new = state.status in _ALIVE and status not in _ALIVE
    if is_new:
        found.append(("start", f"restart {state.restarts}" if state.restarts else ""))
    why = f": {verdict.reason}" if verdict is not None else ""
    for signum in state.signals[0 if is_new else num_signals :]:
        found.append(("signal", f"{signal.Signals(signum).name}{why}"))
    how = state.last or ("" if state.code is None else words_for(state.code))
    if state.status in _OVER and status in _ALIVE:
        found.append(("end", how))
    if state.status == "restarting" and status != "restarting":
        found.append(("restart", how))
    return [event(what, reason, name, state.task.host.name) for what, reason in found]
