"""Shows a running job: lines with a prefix, and on a terminal a live table below them."""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, TextIO

from launch.screen.row import CHIEFS, Row, plain, read_saved, read_step

if TYPE_CHECKING:
    from launch.screen.table import LiveTable


ERROR = "error: "  # begins a line of the program about a mistake of the user
JSON_VERSION = 1  # of what --json prints; it grows where a field changes or goes


class Display:
    """Shows lines and the table of tasks.

    A reader that has gone is no error: the job goes on.

    Args:
      stream: the stream to write to; by default standard output.
      live: whether to redraw a table in place; by default on terminals.
      began: when the job began (`time.time`), in seconds; for the table alone.
    """

    def __init__(
        self, stream: Optional[TextIO] = None, live: Optional[bool] = None, began: float = 0.0
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._table: Optional[LiveTable] = None
        is_plain = os.environ.get("TERM") == "dumb" or os.environ.get("CI")
        if self._stream.isatty() and not is_plain if live is None else live:
            from launch.screen import table

            with contextlib.suppress(OSError):
                self._table = table.LiveTable(self._stream, began)

    def task_line(self, task: str, host: str, line: str) -> None:
        """Shows a line of a task's output.

        Above a live table these are errors, and the chief's, but neither its progress, which is
        below them, nor what it saved at a stop, which the job's last lines say. That a ps was
        stopped is no news: it saves nothing, and is stopped at the end of each job.
        """
        told_below = read_step(line) or read_saved(line)
        is_shown = (task.startswith(CHIEFS) and not told_below) or line.startswith(ERROR)
        is_end = task.startswith("ps/") and line.startswith("stopped by signal")
        if (self._table is None or is_shown) and not is_end:
            self.note(f"[{task} {host}] {line}")

    def note(self, text: str) -> None:
        """Shows one line."""
        line = plain(text)
        with contextlib.suppress(OSError):
            if self._table is not None:
                self._table.line(line)
            else:
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


def print_json(**content: object) -> None:
    """Prints content in the form that docs/formats.md describes, as one JSON object."""
    print(json.dumps({"version": JSON_VERSION, **content}, indent=1))
