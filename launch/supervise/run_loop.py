"""The loop that follows a job to its end, whether agents or Kubernetes run its tasks.

Until the outcome is known, the loop waits for events and signals, shows the tasks' output, and
updates the status file.
"""

import collections
import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, Generic, Optional, Protocol, TypeVar, Union

from launch.agent.protocol import SHOWN
from launch.record.outcome import Cause, Outcome, end_record
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.screen.row import Progress, Row, read_progress, read_saved
from launch.supervise.supervisor import TaskState

_LOOK_SECS = 0.25
_STATUS_SECS = 1.0
_LAST_LINES = 12
_LAST_LINES_SECS = 30.0  # the longest wait for missing lines after the job is over
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


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
        stepped = False
        for line in lines:
            saved, progress = read_saved(line), read_progress(line)
            if saved is not None:
                self._saved[name] = saved
            if progress is not None:
                self._progress[name], stepped = progress, True
        return stepped

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
        tasks = [vars(row) for row in self.rows()]
        return {"time": time.time(), **end_record(outcome), "tasks": tasks}

    def _row(self, name: str, state: TaskState) -> Row:
        progress, words = self._progress.get(name), _words(state)
        step, rate = "", ""
        if progress is not None:
            total = "" if progress.total is None else f"/{progress.total:,}"
            step, rate = f"{progress.step:,}{total}", progress.images_per_sec
        lines = self.last_lines(name)
        last = lines[-1] if lines else ""
        if words == "stopped" and state.code != -signal.SIGKILL:
            last = f"saved {self._saved[name]}" if name in self._saved else ""
        elif words not in ("running", "done", "stopping") and state.last:
            last = state.last
        return Row(name, state.task.host.name, words, step, rate, last)


def _words(state: TaskState) -> str:
    """Describes a task's status; a stop by the launcher's signals is no failure."""
    if state.status == "ended":
        by_signal = any(state.code in (-signum, 128 + signum) for signum in state.signals)
        return "done" if state.code == 0 else "stopped" if by_signal else "ended"
    if state.alive and state.signals:
        return "stopping"
    if state.restarts and state.status == "running":
        return f"running ({state.restarts} restarts)"
    return state.status


class Decider(Protocol):
    """Decides how the job continues, and when it is over."""

    states: dict[str, TaskState]  # task's name -> its state
    outcome: Optional[Outcome]  # set once the job is over

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""


class Runner(Protocol[E_contra]):
    """Runs the tasks: reports events to the decider, and carries out its decisions."""

    def start(self) -> None:
        """Starts the tasks; Interrupted if a signal ends this."""

    def handle(self, event: E_contra) -> None:
        """Handles an event."""

    def stop(self, signum: int, count: int) -> None:
        """Handles the `count`-th signal that asks for the job's end."""

    def tick(self, now: float) -> None:
        """Does what is due at the time `now`; called several times a second."""

    def has_lines_to_come(self) -> bool:
        """Returns whether lines of tasks are still to arrive; called once the outcome is known."""


class RunLoop(Generic[E]):
    """Follows one job to its end.

    Args:
      decider: the object that decides when the job is over.
      folder: the run's folder, for the status.
      display: shows the job's progress to the user.
      events: a queue of events for the runner.
      signals: a list to which each signal that asks for the job's end is added.

    Attributes:
      events: the queue of events.
      has_stepped: whether a task has reported a training step.
    """

    def __init__(
        self,
        decider: Decider,
        folder: RunFolder,
        display: Display,
        events: "Union[queue.Queue[E], queue.SimpleQueue[E]]",
        signals: Sequence[int],
    ) -> None:
        self._decider, self._folder, self._display = decider, folder, display
        self.events, self._signals = events, signals
        self._task_status = TaskStatusTable(decider.states)
        self.has_stepped = False

    def run(self, runner: Runner[E]) -> Outcome:
        """Runs until the outcome is known; returns it with the details that `_details` lists."""
        outcome = self._follow(runner)
        return replace(outcome, details=self._details(outcome))

    def note(self, *texts: str) -> None:
        """Shows each text to the user, on a line of its own."""
        for text in texts:
            self._display.note(text)

    def take_lines(self, task: str, host: str, lines: Sequence[str]) -> None:
        """Shows lines that a task has written."""
        shown = [line[:SHOWN] for line in lines]
        stepped = self._task_status.take(task, shown)
        self.has_stepped = self.has_stepped or stepped
        self._decider.heard(time.monotonic(), stepped=stepped)
        for line in shown:
            self._display.task_line(task, host, line)

    def _follow(self, runner: Runner[E]) -> Outcome:
        heeded, next_status = 0, 0.0
        try:
            runner.start()
        except Interrupted as stop:
            outcome = Outcome(128 + stop.signum, "stopped before the start", cause=Cause.USER)
            self._show(outcome)
            return outcome
        while self._decider.outcome is None:
            self._hear(runner, _LOOK_SECS)
            for signum in self._signals[heeded:]:
                heeded += 1
                runner.stop(signum, heeded)
            now = time.monotonic()
            runner.tick(now)
            if now >= next_status:
                next_status = now + _STATUS_SECS
                self._show(None)
        deadline = time.monotonic() + _LAST_LINES_SECS
        while (is_short := runner.has_lines_to_come()) and time.monotonic() < deadline:
            self._hear(runner, 0.05)
        if is_short:
            self.note(f"a task's last lines did not come within {_LAST_LINES_SECS:g} s")
        self._show(self._decider.outcome)
        return self._decider.outcome

    def _hear(self, runner: Runner[E], secs: float) -> None:
        """Waits at most `secs` for an event, and passes the events to the runner."""
        try:
            runner.handle(self.events.get(timeout=secs))
            for _ in range(1000):
                runner.handle(self.events.get_nowait())
        except queue.Empty:
            return

    def _show(self, outcome: Optional[Outcome]) -> None:
        self._display.table(self._task_status.rows())
        self._folder.write_status(self._task_status.status(outcome))

    def _details(self, outcome: Outcome) -> tuple[str, ...]:
        """Returns a failed task's last lines, the path of the log, and what the lead saved."""
        lines: list[str] = []
        if outcome.task is not None:
            lines += [f"  | {line}" for line in self._task_status.last_lines(outcome.task)]
            log = self._folder.output_log
            lines += [f"  log: {log}"] if log.exists() else []
        saved = self._task_status.saved()
        if outcome.exit_code and saved is not None:
            lines.append(f"saved {saved}")
        return tuple(lines)


class Interrupted(Exception):
    """The signal `signum`, which asks for the job's end, has ended a wait."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


_interrupts = False  # whether a signal raises Interrupted


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Catches SIGINT, SIGTERM, SIGHUP and SIGQUIT in the context; yields a list of those caught.

    One that this process ignores, such as SIGHUP after `nohup`, stays ignored.
    """
    found: list[int] = []

    def note(signum: int, _: Optional[FrameType]) -> None:
        global _interrupts
        found.append(signum)
        if _interrupts and signum != signal.SIGHUP:
            _interrupts = False
            raise Interrupted(signum)

    with _handled(_SIGNALS, note):
        yield found


@contextmanager
def interrupted_by_a_stop() -> Iterator[None]:
    """Makes a signal that `stop_signals` catches also raise Interrupted in the context.

    Only SIGHUP does not: after the context, a job may go on, so it must be known whether there is
    one.
    """
    global _interrupts
    _interrupts = True
    try:
        yield
    finally:
        _interrupts = False


@contextmanager
def _handled(
    signals: Sequence[signal.Signals], handler: Callable[[int, Optional[FrameType]], None]
) -> Iterator[None]:
    """Sets a handler for those of the signals that this process does not ignore."""
    before = {signum: signal.getsignal(signum) for signum in signals}
    heeded = [signum for signum in signals if before[signum] is not signal.SIG_IGN]
    try:
        for signum in heeded:  # in the `try`: the handler of the first may raise meanwhile
            signal.signal(signum, handler)
        yield
    finally:
        for signum in heeded:
            signal.signal(signum, before[signum])
