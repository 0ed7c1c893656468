"""Shows runs from their folders: `attach`, `logs`, and what `up` shows; all follow one log."""

import argparse
import collections
import contextlib
import heapq
import math
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

from cifar10_program.streams import complain
from launch.errors import HostError, LaunchError
from launch.record.output import Follower, Line, utc
from launch.record.run_folder import RunFolder, began_at, find, state_dir
from launch.screen.display import Display
from launch.screen.plain import plain
from launch.screen.row import Row, count_states, duration, saved_rows
from launch.supervise.run_loop import ends_in_order
from launch.verbs.standing import show_end, show_success, state_of, ways_back

LOOK_SECS = 0.2  # between two looks at a run on this machine
_ASK_SECS = 5.0  # for schedulers, which others use, too
_TRIES = 12  # questions without an answer, after which a job is not followed any more
_TABLE_SECS = 1.0  # as often as the launcher writes the table
_STARTING_SECS = 15.0  # after which a start without a table is mentioned; then after twice as long
_TAIL = 20  # lines that came before
_ROOM = 1 << 16  # bytes, as much as a large status


class View:
    """Shows one run.

    Args:
      folder: the run's folder.
      live: whether to show a table; None to show one on terminals.
      tail: how many of the lines before now to show; None for all.
      hides_tasks: whether to show the launcher's own lines alone.

    Attributes:
      is_blind: whether the disk was full, so that what the run does could not be seen.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        live: Optional[bool] = None,
        tail: Optional[int] = None,
        hides_tasks: bool = False,
    ) -> None:
        self._folder, self._live, self._tail, self._hides_tasks = folder, live, tail, hides_tasks
        self._began = began_at(folder.record()) or time.time()
        self._logs = Follower(folder.output_log), Follower(folder.launcher_log)
        self.is_blind = False
        self._next_table, self._next_mention = 0.0, _STARTING_SECS
        self._display: Optional[Display] = None

    def note(self, text: str) -> None:
        """Shows a line."""
        self._shown().note(text)

    def show_new(self, *, final: bool = False) -> None:
        """Shows what is new since the last call.

        Args:
          final: whether the run is over, and nothing more will come.
        """
        new = (log.lines(final=final) for log in self._logs)
        lines: Iterable[Line] = heapq.merge(*new, key=lambda line: line.time)
        if self._tail is not None:
            lines, self._tail = collections.deque(lines, self._tail), None
        display = self._shown()
        for line in lines:
            if not line.task:
                display.note(line.text)
            elif not self._hides_tasks:
                display.task_line(line.task, line.host, line.text)
        if final or time.monotonic() >= self._next_table:
            rows = saved_rows(self._folder.status().get("tasks", []))
            if rows:  # else they may come at any moment
                self._next_table = time.monotonic() + _TABLE_SECS
            display.table(rows)
            if not final:
                self._mention_the_start(rows)
                self._look_at_the_disk()

    def _mention_the_start(self, rows: Sequence[Row]) -> None:
        """Says from time to time that no task has taken a step yet, as a live table does."""
        secs = time.time() - self._began
        if any(row.step for row in rows):
            self._next_mention = math.inf
        elif rows and secs >= self._next_mention and not self._shown().live:
            self._next_mention = 2 * secs
            self.note(f"{duration(secs)} elapsed, no training step yet: {count_states(rows)}")

    def _look_at_the_disk(self) -> None:
        """Tells, once, that a full disk keeps the launcher from writing what it does."""
        with contextlib.suppress(OSError):  # the folder was removed, which `status` says
            if not self.is_blind and shutil.disk_usage(self._folder.path).free < _ROOM:
                self.is_blind = True
                words = "No space left on device, so nothing new is shown; the run goes on"
                self.note(f"{self._folder.path}: {words}")

    def close(self) -> None:
        """Ends what is shown, below which others may write; what comes later begins anew."""
        if self._display is not None:
            self._display.close()
            self._display = None
            self._next_table = 0.0  # a new one knows no rows yet

    def _shown(self) -> Display:
        if self._display is None:
            self._display = Display(live=self._live, began=self._began)
        return self._display


def _looks(folder: RunFolder) -> Iterator[bool]:
    """Yields at each look at a run whether it is the last one; waits between two."""
    is_running, tries = True, _TRIES
    while is_running:
        state = state_of(folder)
        tries = tries - 1 if state.is_unknown else _TRIES
        is_running = state.writes and tries > 0
        yield not is_running
        if is_running:
            time.sleep(LOOK_SECS if state.is_followed else _ASK_SECS)


def attach(options: argparse.Namespace) -> int:
    """Shows a run until it ends, and returns its exit code; 130 if Ctrl-C ends this first.

    Other signals end it by SystemExit, once the terminal is as it was.

    Raises:
      HostError: the run's launcher has ended without saying how the run ended, or may run on
        another machine.
    """
    folder = find(state_dir(options.state_dir), options.run)
    with ends_in_order():
        view = View(folder, live=False if options.lines else None, tail=_TAIL)
        view.note(f"run {folder.run_id}")
        view.note(f"run folder: {folder.path}")
        try:
            for is_last in _looks(folder):
                view.show_new(final=is_last)
        except KeyboardInterrupt:
            view.close()
            ways_back(folder)
            return 128 + signal.SIGINT
        finally:
            view.close()
    outcome = folder.end()
    if outcome is None:
        raise HostError(f"run {folder.run_id}: {state_of(folder).words}")
    if outcome.exit_code == 0:
        show_success(folder)
    command = folder.record().get("command")
    show_end(outcome, command if isinstance(command, str) else None)
    return outcome.exit_code


def logs(options: argparse.Namespace) -> int:
    """Prints the lines of tasks, by default of all; with -f, follows them until the run ends.

    Raises:
      LaunchError: there is no such run or task, or nobody has written anything yet.
    """
    folder = find(state_dir(options.state_dir), options.run)
    tasks = _chosen(folder, options.tasks)
    if not options.follow and not folder.output_log.exists():
        raise LaunchError(f"no task has written anything yet: {folder.output_log}")
    log, since, silent = Follower(folder.output_log), utc(options.since), {*tasks}

    def new_lines(*, final: bool) -> Iterator[Line]:
        for line in log.lines(final=final):
            silent.discard(line.task)
            is_found = options.grep is None or options.grep.search(line.text)
            if line.task in tasks and line.time >= since and is_found:
                yield line

    def show(lines: Iterable[Line]) -> None:
        for line in lines:
            prefix = f"[{line.task} {line.host}] " if len(tasks) > 1 else ""
            sys.stdout.write(f"{plain(prefix + line.text)}\n")
        sys.stdout.flush()

    old = new_lines(final=not options.follow)
    show(old if options.tail is None else _last(old, options.tail))
    if silent == tasks and not options.follow:
        names = ", ".join(sorted(map(plain, silent)))
        raise LaunchError(f"no line of {names} in {folder.output_log}; to wait for one: logs -f")
    if options.follow:
        for is_last in _looks(folder):
            show(new_lines(final=is_last))
        if folder.end() is None:
            complain(f"note: not followed: {plain(state_of(folder).words)}")
    return 0


def _last(lines: Iterable[Line], count: int) -> Iterator[Line]:
    """Yields the last lines of each task, in the order in which they came."""
    found: dict[str, collections.deque[tuple[int, Line]]] = {}
    for number, line in enumerate(lines):
        found.setdefault(line.task, collections.deque(maxlen=count)).append((number, line))
    for _, line in sorted(pair for of_task in found.values() for pair in of_task):
        yield line


def _chosen(folder: RunFolder, asked: "list[str]") -> set[str]:
    """Returns the names of the tasks to print.

    Args:
      folder: the run's folder.
      asked: names of tasks, or task types for all tasks of a type; empty for all tasks.

    Raises:
      LaunchError: the run has no such task.
    """
    known = [entry["task"] for entry in folder.record()["tasks"]]
    for word in asked:
        if word not in known and not any(name.startswith(f"{word}/") for name in known):
            raise LaunchError(
                f"run {folder.run_id} has no task {word}; it has {', '.join(map(plain, known))}"
            )
    return {name for name in known if not asked or {name, name.partition("/")[0]} & set(asked)}
