"""What is told of every task: in the table, the status file and after a failure."""

import collections
import signal
import time
from collections.abc import Sequence
from typing import Any, Optional

from launch.record.outcome import Outcome, end_record
from launch.screen.row import Progress, Row, read_progress, read_saved
from launch.supervise.supervisor import TaskState

_LAST_LINES = 12


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
