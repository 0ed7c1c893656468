"""`up` on a terminal, and `up --detach`: shows a run whose launcher is a process of its own.

So the run can go on without this terminal: `up` only shows it, passes signals on, and asks at
Ctrl-C what to do. If `up` is killed, the launcher ends the run as if the terminal were closed.
"""

import enum
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Optional

from launch.errors import HostError
from launch.record import events
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.supervise.background import Background
from launch.supervise.run_loop import stop_signals
from launch.verbs.view import View

_LOOK_SECS = 0.2
_QUESTION = "Ctrl-C: [l]eave running, [s]top (saves first), [c]ontinue?\na letter, then Enter: "


class NotSeen(HostError):
    """The run goes on, but whether the job has started cannot be seen."""


class _Answer(enum.Enum):
    LEAVE = "l"
    STOP = "s"
    CONTINUE = "c"


def can_ask() -> bool:
    """Returns whether a user at a terminal can be asked: not in CI, nor in a pipe."""
    return os.isatty(0) and sys.stdout.isatty() and not os.environ.get("CI")


class Foreground:
    """Shows a run until it has ended or is left.

    Args:
      process: the run's launcher.
      folder: the run's folder.
      view: shows the run.
      signals: a list to which the signals to this process are added.
    """

    def __init__(
        self, process: Background, folder: RunFolder, view: View, signals: Sequence[int]
    ) -> None:
        self._process, self._folder, self._view = process, folder, view
        self._signals, self._num_heeded = signals, 0
        self._is_stopping = self._is_hung_up = False

    def follow(self, is_enough: Callable[[], bool] = lambda: False) -> Optional[Outcome]:
        """Shows the run; returns how it ended, or None if it goes on.

        Args:
          is_enough: a function that returns whether to let the run go on without this process.

        Raises:
          LaunchError: the job could not be started, or its launcher has failed.
        """
        while not self._process.wait(_LOOK_SECS):
            self._view.show_new()
            while self._num_heeded < len(self._signals):
                if self._heed(self._next_signal()):
                    self._leave()
                    return None
            if is_enough():
                self._leave()
                return None
        self._view.show_new(final=True)
        self._view.close()
        return self._process.outcome()

    def _leave(self) -> None:
        self._view.close()
        self._process.leave()
        events.add(self._folder, [events.event("left running")])

    def _next_signal(self) -> int:
        self._num_heeded += 1
        return self._signals[self._num_heeded - 1]

    def _heed(self, signum: int) -> bool:
        """Asks what to do, or passes a signal on to the launcher; returns whether to leave."""
        if signum == signal.SIGINT and not self._is_stopping and can_ask() and _is_typed():
            self._view.close()
            answer = self._ask()
            if answer is _Answer.LEAVE:
                return True
            if answer is not _Answer.STOP:
                return False
        # The shell and the kernel may both tell of the end of a terminal.
        if signum != signal.SIGHUP or not self._is_hung_up:
            self._process.signal(signum)
        self._is_stopping = True
        self._is_hung_up = self._is_hung_up or signum == signal.SIGHUP
        return False

    def _ask(self) -> Optional[_Answer]:
        """Asks the user at Ctrl-C; returns None if something else happens meanwhile."""
        _say(f"\n{_QUESTION}")
        while not self._process.wait(0):
            if self._num_heeded < len(self._signals):
                _say("\n")
                if self._signals[self._num_heeded] != signal.SIGINT:
                    return None
                self._num_heeded += 1
                return _Answer.STOP
            if not select.select([0], [], [], _LOOK_SECS)[0]:
                continue
            word = os.read(0, 1024).decode(errors="replace").strip().lower()
            for answer in _Answer:
                if word in (answer.value, answer.name.lower()):
                    return answer
            if not word:
                return _Answer.CONTINUE
            _say(_QUESTION)
        _say("\n")
        return None


def follow(process: Background, folder: RunFolder, *, live: Optional[bool]) -> Optional[Outcome]:
    """Shows a run; returns how it ended, or None if the user has left it running."""
    with stop_signals() as signals:
        return Foreground(process, folder, View(folder, live=live), signals).follow()


def follow_start(
    process: Background, folder: RunFolder, has_started: Callable[[], bool]
) -> Optional[Outcome]:
    """Shows the launcher's lines until the job has started; returns how it ended, if it has.

    Raises:
      NotSeen: the run's folder cannot be written, so that nobody knows what its tasks do.
    """
    view = View(folder, live=False)
    view.hides_tasks = True
    with stop_signals() as signals:
        foreground = Foreground(process, folder, view, signals)
        outcome = foreground.follow(lambda: has_started() or bool(view.blind))
    if outcome is None and view.blind:
        raise NotSeen(
            "whether the job has started cannot be seen; free the disk, then see `status`"
        )
    return outcome


def _is_typed() -> bool:
    """Returns whether this is a command of the terminal's shell, and in the foreground.

    Such a command leads a process group of its own. One of a script is in the script's group, which
    Ctrl-C may end, and a job in the background may not read from the terminal.
    """
    try:
        return os.tcgetpgrp(0) == os.getpid()
    except OSError:
        return False


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
