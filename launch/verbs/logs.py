"""`logs`: prints what tasks have written, and follows it."""

import argparse
import collections
import heapq
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from cifar10_program.streams import complain
from launch.cluster.model import LEADS
from launch.errors import LaunchError
from launch.record.run_folder import RunFolder, find, state_dir
from launch.record.task_log import Line, TaskLog
from launch.screen.plain import plain
from launch.screen.row import saved_rows
from launch.verbs.going_on import ASK_SECS, LOOK_SECS, elsewhere, without_launcher


@dataclass
class _Source:
    """A task whose log is printed.

    Attributes:
      prefix: what stands before each of its lines; empty if no other task's are printed.
      log: its log.
    """

    prefix: str
    log: TaskLog

    def text(self, line: Line) -> bytes:
        """Returns a line as it is printed."""
        if not self.prefix:
            return line.data
        return self.prefix.encode() + line.data + (b"" if line.data.endswith(b"\n") else b"\n")


def logs(options: argparse.Namespace) -> int:
    """Prints the logs of tasks, by default of all; with -f, follows them until the run ends.

    Raises:
      LaunchError: there is no such run or task, or nobody has written anything yet.
    """
    folder = find(state_dir(options.state_dir), options.run)
    sources = _sources(folder, options.tasks, options.since)
    if not options.follow and not any(source.log.exists() for source in sources.values()):
        who = ", ".join(map(plain, sources)) or "its tasks"
        has = "has" if len(sources) == 1 else "have"
        raise LaunchError(f"{who} {has} not written anything yet: {folder.path / 'logs'}")
    pattern: Optional[re.Pattern[bytes]] = options.grep

    def chosen(lines: Iterator[Line]) -> Iterator[Line]:
        return lines if pattern is None else (one for one in lines if pattern.search(one.data))

    show = _to_a_terminal if sys.stdout.isatty() else sys.stdout.buffer.write
    for data in _old(list(sources.values()), chosen, options.tail, final=not options.follow):
        show(data)
    sys.stdout.flush()
    for name, source in sources.items():
        if source.log.is_untimed:
            words = "the times of its earlier lines are not known; --since left none of them out"
            complain(f"note: {plain(name)}: {words}")
    if options.follow:
        for data in _new(folder, list(sources.values()), chosen):
            show(data)
        where = "" if folder.launcher_pid() else elsewhere(folder)
        if where:
            complain(f"note: not followed: {plain(where)}")
    return 0


def _sources(folder: RunFolder, asked: Sequence[str], since: float) -> dict[str, _Source]:
    """Returns the tasks to print, the master first: name -> source.

    Args:
      folder: the run's folder.
      asked: names of tasks, or task types for all tasks of a type; empty for all tasks.
      since: the time before which lines are left out, in seconds since 1970.

    Raises:
      LaunchError: the run has no such task.
    """
    known = {entry["task"]: entry.get("host") for entry in folder.record()["tasks"]}
    for word in asked:
        if word not in known and not any(name.startswith(f"{word}/") for name in known):
            raise LaunchError(
                f"run {folder.run_id} has no task {word}; it has {', '.join(map(plain, known))}"
            )
    names = [
        name for name in known if not asked or name in asked or name.partition("/")[0] in asked
    ]
    names.sort(key=lambda name: name.partition("/")[0] not in LEADS)
    hosts = {row.task: row.host for row in saved_rows(folder.status().get("tasks", []))}
    return {
        name: _Source(
            plain(f"[{name} {hosts.get(name) or known[name]}] ") if len(names) > 1 else "",
            TaskLog(folder.log_path(name), since),
        )
        for name in names
    }


_Filter = Callable[[Iterator[Line]], Iterator[Line]]


def _old(
    sources: Sequence[_Source], chosen: _Filter, tail: Optional[int], *, final: bool
) -> Iterator[bytes]:
    """Yields what has been written so far, the lines of all tasks in the order of their times.

    Args:
      sources: the tasks.
      chosen: returns the lines to print of those of a task.
      tail: how many of the last lines of each task to print; None for all.
      final: whether to print a last line that has no line end yet.
    """

    def of(index: int, source: _Source) -> Iterator[tuple[float, int, bytes]]:
        lines = chosen(source.log.lines(final=final))
        latest = 0.0
        for line in lines if tail is None else collections.deque(lines, tail):
            latest = max(latest, line.time)  # a clock that was set back changes no order
            yield latest, index, source.text(line)

    streams = [of(index, source) for index, source in enumerate(sources)]
    for _, _, data in heapq.merge(*streams, key=lambda one: one[:2]):
        yield data


def _new(folder: RunFolder, sources: Sequence[_Source], chosen: _Filter) -> Iterator[bytes]:
    """Yields new lines until the run ends; before each wait, what was yielded is written."""
    running = True
    while running:
        launched = folder.launcher_pid() is not None
        running = launched or bool(without_launcher(folder))
        for source in sources:
            for line in chosen(source.log.lines(final=not running)):
                yield source.text(line)
        sys.stdout.flush()
        if running:
            time.sleep(LOOK_SECS if launched else ASK_SECS)


def _to_a_terminal(data: bytes) -> int:
    """Prints bytes as plain text, which cannot control the terminal."""
    text = data.decode(errors="replace")
    return sys.stdout.write(plain(text) + ("\n" if text.endswith("\n") else ""))
