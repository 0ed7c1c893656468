"""Shows a run from its folder: what its launcher wrote, and the table of its tasks."""

import collections
import heapq
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from launch.record.run_folder import Record, RunFolder, began_at
from launch.record.task_log import TaskLog
from launch.screen.display import Display
from launch.screen.row import saved_rows

_TABLE_SECS = 1.0  # as often as the launcher writes the table
_SILENT_SECS = 10.0  # without a new status, until it is asked whether the disk is full
_ROOM = bytes(1 << 16)  # as much as a large status
_SHOWN = 4096  # characters of a line, as of a launcher with a terminal
_TASK_LINE = re.compile(r"\[(\w+/\d+) (\S+)\] (.*)")


class View:
    """Shows one run.

    Args:
      folder: the run's folder.
      live: whether to show a table; None to show one on terminals.
      tail: how many of the lines before now to show; None for all.
      of_tasks: whether to read the tasks' logs rather than what a launcher in the background wrote.

    Attributes:
      hides_tasks: whether to show the launcher's own lines alone.
      blind: why nothing new can be seen, since nothing can be written; "" while it can.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        live: Optional[bool] = None,
        tail: Optional[int] = None,
        of_tasks: bool = False,
    ) -> None:
        self._folder, self._live, self._tail = folder, live, tail
        record = folder.record()
        self._hosts = {entry["task"]: entry["host"] for entry in record["tasks"]}
        self._began = began_at(record)
        self._logs = {"": TaskLog(folder.launcher_log)}
        if of_tasks:
            self._logs = {name: TaskLog(folder.log_path(name)) for name in self._hosts}
        self.hides_tasks = False
        self.blind = ""
        self._written: object = None  # the time of the last status
        self._looked = time.monotonic()  # when there was a new status, or room for one
        self._next_table = 0.0
        self._display: Optional[Display] = None

    def note(self, text: str) -> None:
        """Shows a line."""
        self._shown().note(text)

    def show_new(self, *, final: bool = False) -> None:
        """Shows what is new since the last call.

        Args:
          final: whether the run is over, and nothing more will come.
        """
        lines = self._new_lines(final=final)
        if self._tail is not None:
            lines = iter(collections.deque(lines, self._tail))
            self._tail = None
        display = self._shown()
        for line in lines:
            found = _TASK_LINE.fullmatch(line)
            if found is None or found[1] not in self._hosts:
                display.note(line)
            elif not self.hides_tasks:
                display.task_line(found[1], found[2], found[3])
        if final or time.monotonic() >= self._next_table:
            self._next_table = time.monotonic() + _TABLE_SECS
            status = self._folder.status()
            if not final:
                self._look_at_the_disk(status)
            rows = saved_rows(status.get("tasks", []))
            # Without a live table, it says that the start lasts; of an ended run, nothing does.
            if display.live or (rows and not final):
                display.table(rows)

    def close(self) -> None:
        """Ends what is shown, below which others may write; what comes later begins anew."""
        if self._display is not None:
            self._display.close()
            self._display = None
            self._next_table = 0.0  # a new one knows no rows yet

    def _look_at_the_disk(self, status: Record) -> None:
        """Tells, once, that a full disk keeps the launcher from writing what it does."""
        now = time.monotonic()
        if status.get("time") != self._written:
            self._written, self._looked, self.blind = status.get("time"), now, ""
        elif not self.blind and now >= self._looked + _SILENT_SECS:
            self._looked = now
            refusal = _refusal(self._folder.path)
            if refusal:
                self.blind = (
                    f"{self._folder.path}: {refusal}; nothing was written there for "
                    f"{_SILENT_SECS:g} s, so nothing new is shown; the run goes on"
                )
                self.note(self.blind)

    def _shown(self) -> Display:
        if self._display is None:
            self._display = Display(live=self._live, began=self._began)
        return self._display

    def _new_lines(self, *, final: bool) -> Iterator[str]:
        """Yields new lines, those of several logs in the order of their times."""
        hosts = {row.task: row.host for row in saved_rows(self._folder.status().get("tasks", []))}

        def of(name: str, log: TaskLog) -> Iterator[tuple[float, str]]:
            host = hosts.get(name) or self._hosts.get(name) or "-"
            place = f"[{name} {host}] " if name else ""
            latest = 0.0
            for line in log.lines(final=final):
                latest = max(latest, line.time)  # a clock that was set back changes no order
                yield latest, place + line.data.decode(errors="replace").rstrip("\r\n")[:_SHOWN]

        streams = [of(name, log) for name, log in self._logs.items()]
        for _, text in heapq.merge(*streams, key=lambda one: one[0]):
            yield text


def _refusal(folder: Path) -> str:
    """Returns why a file of the size of a status cannot be written there; "" if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(_ROOM)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""
