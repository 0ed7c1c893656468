"""The loop that follows a job to its end, whether agents or Kubernetes run its tasks.

Until the result is known, the loop waits for events and signals, shows the tasks' output, and
updates the status file.
"""

import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Optional, Protocol, Union

from launch.agent.protocol import SHOWN
from launch.record.result import Result
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.supervisor import Supervisor
from launch.supervise.task_state import status_of

_LOOK_SECS = 0.25
_STATUS_SECS = 1.0
_LAST_LINES_SECS = 30.0  # the longest wait for missing lines after the job is over
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Driver(Protocol):
    """Runs the tasks: reports events to the supervisor, and carries out its decisions."""

    def start(self) -> None:
        """Starts the tasks."""

    def handle(self, event: Any) -> None:
        """Handles an event."""

    def stop(self, signum: int) -> None:
        """Handles a signal that asks for the job's end."""

    def tick(self, now: float) -> None:
        """Does what is due at the time `now`; called several times a second."""

    def has_lines_to_come(self) -> bool:
        """Returns whether lines of tasks are still to arrive; called once the result is known."""


class RunLoop:
    """Follows one job to its end.

    Args:
      supervisor: the object that decides how the job goes on, and when it is over.
      folder: the run's folder, for the status.
      display: shows the job's progress to the user.
      events: a queue of events for the driver.
      signals: a list to which each signal that asks for the job's end is added.

    Attributes:
      events: the queue of events.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        folder: RunFolder,
        display: Display,
        events: "Union[queue.Queue[Any], queue.SimpleQueue[Any]]",
        signals: Sequence[int],
    ) -> None:
        self._supervisor, self._folder, self._display = supervisor, folder, display
        self.events, self._signals = events, signals

    def note(self, text: str) -> None:
        """Shows a line to the user."""
        self._display.note(text)

    def take_lines(self, task: str, host: str, lines: Sequence[str]) -> None:
        """Shows lines that a task has written."""
        shown = [line[:SHOWN] for line in lines]
        stepped = self._supervisor.states[task].take(shown)
        self._supervisor.heard(time.monotonic(), stepped=stepped)
        for line in shown:
            self._display.task_line(task, host, line)

    def supervise(self, driver: Driver) -> Result:
        """Runs until the result is known; returns it with the details that `_details` lists."""
        heeded, next_status = 0, 0.0
        driver.start()
        while self._supervisor.result is None:
            self._hear(driver, _LOOK_SECS)
            for signum in self._signals[heeded:]:
                heeded += 1
                driver.stop(signum)
            now = time.monotonic()
            driver.tick(now)
            if now >= next_status:
                next_status = now + _STATUS_SECS
                self._show(None)
        deadline = time.monotonic() + _LAST_LINES_SECS
        while (is_short := driver.has_lines_to_come()) and time.monotonic() < deadline:
            self._hear(driver, 0.05)
        if is_short:
            self.note(f"a task's last lines did not come within {_LAST_LINES_SECS:g} s")
        result = self._supervisor.result
        self._show(result)
        return replace(result, details=self._details(result))

    def _hear(self, driver: Driver, secs: float) -> None:
        """Waits at most `secs` for an event, and passes the events to the driver."""
        with suppress(queue.Empty):
            driver.handle(self.events.get(timeout=secs))
            for _ in range(1000):
                driver.handle(self.events.get_nowait())

    def _show(self, result: Optional[Result]) -> None:
        self._folder.write_status(status_of(self._supervisor.states.values(), result))

    def _details(self, result: Result) -> tuple[str, ...]:
        """Returns a failed task's last lines, the path of the log, and what the chief saved."""
        lines: list[str] = []
        if result.task is not None:
            lines += [f"  | {line}" for line in self._supervisor.states[result.task].lines]
            log = self._folder.output_log
            lines += [f"  log: {log}"] if log.exists() else []
        chiefs = [state for state in self._supervisor.states.values() if state.task.is_chief]
        if result.exit_code:
            lines += [f"saved {chief.saved}" for chief in chiefs if chief.saved]
        return tuple(lines)


@contextmanager
def stop_signals(heed: Callable[[int], object] = lambda _: None) -> Iterator[list[int]]:
    """Catches SIGINT, SIGTERM, SIGHUP and SIGQUIT in the context; yields a list of those caught.

    One that this process ignores, such as SIGHUP after `nohup`, stays ignored. `heed` is called
    with each at once, in whatever this process does. Of several SIGHUPs the first one counts: the
    shell and the kernel may both tell of the end of a terminal.
    """
    found: list[int] = []

    def catch(signum: int, _: object) -> None:
        if signum != signal.SIGHUP or signum not in found:
            found.append(signum)
            heed(signum)

    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    heeded = [signum for signum in _SIGNALS if before[signum] is not signal.SIG_IGN]
    try:
        for signum in heeded:
            signal.signal(signum, catch)
        yield found
    finally:
        for signum in heeded:
            signal.signal(signum, before[signum])
