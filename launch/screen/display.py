"""Shows a running job: lines with a prefix, and on a terminal a live table below them."""

import contextlib
import io
import os
import select
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, TextIO, cast

from launch.screen.plain import plain
from launch.screen.row import LEADS, Row, is_progress

if TYPE_CHECKING:
    from launch.screen.table import LiveTable

_LONGEST = 8192  # characters of a line
_MOST_AT_START = 20  # lines of the lead before its first step


class Display:
    """Shows lines and the table of tasks.

    A reader that has gone is no error: the job goes on.

    Args:
      stream: the stream to write to; by default standard output.
      live: whether to redraw a table in place; by default on terminals.
      began: when the job began (`time.time`), in seconds; None: now.
    """

    def __init__(
        self,
        stream: Optional[TextIO] = None,
        live: Optional[bool] = None,
        began: Optional[float] = None,
    ) -> None:
        stream = sys.stdout if stream is None else stream
        self.live = _is_terminal(stream) if live is None else live
        self._stream = _past_the_buffer(stream)
        self._start: Optional[list[str]] = []  # what the lead has said before its first step
        since = time.monotonic() - (0 if began is None else max(time.time() - began, 0))
        self._table: Optional[LiveTable] = None
        if self.live:
            from launch.screen import table

            with contextlib.suppress(OSError):
                self._table = table.LiveTable(self._stream, since)

    def task_line(self, task: str, host: str, line: str) -> None:
        """Shows a line of a task's output.

        Above a live table there are only lines of the lead: not its progress, and not what it says
        while it starts, which the table shows, unless it says much or ends without a step.
        """
        text = f"[{task} {host}] {line}"
        if not self.live:
            self.note(text)
        elif not task.startswith(LEADS):
            return
        elif is_progress(line):
            self._start = None
        elif self._start is None:
            self.note(text)
        else:
            self._start.append(text)
            if len(self._start) > _MOST_AT_START:
                self._show_start()

    def _show_start(self) -> None:
        for text in self._start or ():
            self.note(text)
        self._start = None

    def note(self, text: str) -> None:
        """Shows one line."""
        line = plain(text[:_LONGEST])
        with contextlib.suppress(OSError):
            if self._table is not None:
                self._table.line(line)
            elif not self.live:
                self._stream.write(f"{line}\n")
                self._stream.flush()

    def table(self, rows: Sequence[Row]) -> None:
        """Redraws the table if live."""
        if self._table is not None:
            if any(row.step for row in rows):
                self._show_start()  # The job was training already when this display was opened.
            with contextlib.suppress(OSError):
                self._table.draw(rows)

    def close(self) -> None:
        """Erases the live table; afterwards, others may write below the lines."""
        self._show_start()
        with contextlib.suppress(OSError):
            if self._table is not None:
                self._table.close()
        self._table = None


class _Direct(io.TextIOBase):
    """Writes to a file descriptor without a buffer.

    A thread that blocks in a buffered write holds the buffer's lock, which makes the interpreter
    abort at exit; this one blocks in a system call, without a lock.
    """

    def __init__(self, stream: TextIO) -> None:
        with contextlib.suppress(BlockingIOError):
            stream.flush()
        self._fd = stream.fileno()

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # another program has made what it shares non-blocking
                room = select.poll()  # select() takes no descriptor from 1,024 on.
                room.register(self._fd, select.POLLOUT)
                room.poll()
        return len(text)

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def fileno(self) -> int:
        return self._fd


def _past_the_buffer(stream: TextIO) -> TextIO:
    try:
        return cast(TextIO, _Direct(stream))
    except (OSError, ValueError):  # in memory, or closed, which raises its own error later
        return stream


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
