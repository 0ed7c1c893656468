"""What the launcher knows of one task: its state, and what its lines have said."""

import collections
import re
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from launch.cluster.tasks import Task
from launch.record.result import ExitReason, Result, end_record
from launch.screen.row import Row, read_saved, read_step

_LAST_LINES = 12
_VALIDATED = re.compile(r"accuracy \S{1,20} at step ([0-9,]{1,20})\b")


@dataclass
class TaskState:
    """The state of one task.

    Attributes:
      task: the task.
      status: waiting, starting, running, restarting, ended or failed.
      restarts: how often the task was restarted.
      due: the time of the next restart.
      code: the last exit code, -n for signal n; None if there is none.
      last: why the task ended or waits, in words; "" if neither is known.
      cause: the cause of the task's last end, if that was a failure.
      signals: the signals that this launcher has sent to the task since its last start.
      lines: the last lines that it wrote, without empty ones.
      step: the last step that a line reported, as `read_step` returns it.
      progress: that line.
      saved: the checkpoint that it saved at its end.
    """

    task: Task
    status: str = "waiting"
    restarts: int = 0
    due: float = 0.0
    code: Optional[int] = None
    last: str = ""
    cause: ExitReason = ExitReason.TASK_FAILED
    signals: tuple[int, ...] = ()
    lines: "collections.deque[str]" = field(
        default_factory=lambda: collections.deque(maxlen=_LAST_LINES)
    )
    step: str = ""
    progress: str = ""
    saved: Optional[str] = None

    @property
    def alive(self) -> bool:
        """Whether the task may have a process."""
        return self.status in ("starting", "running")

    def take(self, lines: Sequence[str]) -> bool:
        """Records the task's lines; returns whether one of them reports a training step."""
        self.lines.extend(line for line in lines if line.strip())
        has_stepped = False
        for line in lines:
            step, self.saved = read_step(line), read_saved(line) or self.saved
            if step:
                self.step, self.progress, has_stepped = step, line, True
            elif validated := _VALIDATED.search(line):  # between two reports of progress
                total = self.step.partition("/")[2]
                self.step = read_step(f"step {validated[1]}/{total}") or self.step
        return has_stepped

    def row(self) -> Row:
        """Returns the task's row in the table."""
        words = self._words()
        last = self.lines[-1] if self.lines else ""
        if words == "stopped" and self.code != -signal.SIGKILL:
            last = f"saved {self.saved}" if self.saved else ""
        elif words not in ("running", "done", "stopping") and self.last:
            last = self.last
        return Row(self.task.name, self.task.host.name, words, self.step, last, self.progress)

    def _words(self) -> str:
        """Describes the status; a stop by the launcher's signals is no failure."""
        if self.status == "ended":
            by_signal = any(self.code in (-signum, 128 + signum) for signum in self.signals)
            return "done" if self.code == 0 else "stopped" if by_signal else "ended"
        if self.alive and self.signals:
            return "stopping"
        if self.restarts and self.status == "running":
            return f"running ({self.restarts} restarts)"
        return self.status


def status_of(states: Iterable[TaskState], result: Optional[Result] = None) -> dict[str, Any]:
    """Returns what status.json says of a job's tasks, and of its end if it has ended."""
    tasks = [vars(state.row()) for state in states]
    return {"time": time.time(), **end_record(result), "tasks": tasks}
