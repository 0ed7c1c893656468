"""Shows a running job: lines with a prefix, and on a terminal a live table below them."""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, TextIO

from launch.screen.row import LEADS, Row, plain, read_progress

if TYPE_CHECKING:
    from launch.screen.table import LiveTable


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
        self._stream = sys.stdout if stream is None else stream
        self._is_live = _is_terminal(self._stream) if live is None else live
        self._table: Optional[LiveTable] = None
        if self._is_live:
            from launch.screen import table

            with contextlib.suppress(OSError):
                since = time.time() if began is None else began
                self._table = table.LiveTable(self._stream, since)

    def task_line(self, task: str, host: str, line: str) -> None:
        """Shows a line of a task's output; above a live table, only the lead's, but no progress."""
        if not self._is_live or (task.startswith(LEADS) and read_progress(line) is None):
            self.note(f"[{task} {host}] {line}")

    def note(self, text: str) -> None:
        """Shows one line."""
        line = plain(text)
        with contextlib.suppress(OSError):
            if self._table is not None:
                self._table.line(line)
            elif not self._is_live:
                self._stream.write(f"{line}\n")
                self._stream.flush()

    def table(self, rows: Sequence[Row]) -> None:
        """Redraws the table if live."""
        with contextlib.suppress(OSError):
            if self._table is not None:
                self._table.draw(rows)

    def close(self) -> None:
        """Erases the live table; afterwards, others may write below the lines."""
        with contextlib.suppress(OSError):
            if self._table is not None:
                self._table.close()
        self._table = None


def say(*lines: str) -> None:
    """Prints lines, without characters that control the terminal."""
    display = Display(live=False)
    for line in lines:
        display.note(line)


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
