"""Tables, drawn by rich: those that are printed once, and the live one below a job's lines."""

import contextlib
import os
import termios
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import Any, Optional, TextIO

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launch.screen.plain import plain
from launch.screen.row import Row, count_states, job_line, those_that_differ

_STYLES = {
    "running": "green",
    "done": "dim",
    "stopped": "dim",
    "failed": "bold red",
    "restarting": "yellow",
    "stopping": "yellow",
}
_WIDE = 80  # columns from which host and step have a column, too
# Which rows stay if the screen is too low for all.
_URGENT = ("failed", "restarting", "stopping", "starting", "waiting")
_OTHER_LINES = 5  # of the screen: the header, the other lines of the frame, and one above it
_FILE_WIDTH = 200  # columns of a table in a file, which no width limits


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
    """Prints a table on standard output.

    Args:
      titles: the titles of the columns.
      rows: the texts of each row, which may have fewer cells.
      right: the titles of columns of numbers, separated by spaces.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, no_wrap=True, justify="right" if title in right.split() else "left")
    for row in rows:
        table.add_row(*(Text(plain(text)) for text in row))
    _print(table)


def print_tasks(rows: Sequence[Row]) -> None:
    """Prints the table of a job's tasks on standard output."""
    _print(None, rows)


def _print(table: Optional[Table], rows: Sequence[Row] = ()) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    console.print(render(rows, console.width) if table is None else table)


def render(rows: Sequence[Row], width: int) -> Table:
    """Returns the table of a job's tasks.

    Args:
      rows: the rows of all tasks.
      width: the columns of the terminal; a narrow one shows neither hosts nor steps.
    """
    names = ("task", "host", "state", "step") if width >= _WIDE else ("task", "state")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    room = width
    for name in names:
        widest = max(
            cell_len(text) for text in [name, *(plain(getattr(row, name)) for row in rows)]
        )
        table.add_column(
            name, min_width=widest, no_wrap=True, justify="right" if name == "step" else "left"
        )
        room -= widest + 2
    table.add_column("last line")  # the one column that gives way
    for row in rows:
        words = row.own_words.split("  ")
        while len(words) > 1 and len("  ".join(words)) > room:
            words.pop()  # whole figures, so that none is cut
        styles = {"state": _STYLES.get(row.kind, "")}
        cells = [Text(plain(getattr(row, name)), styles.get(name, "")) for name in names]
        table.add_row(*cells, Text(plain("  ".join(words)), no_wrap=True, overflow="ellipsis"))
    return table


def fitting(rows: Sequence[Row], count: int) -> tuple[list[Row], str]:
    """Chooses the rows to show on a low screen.

    Args:
      rows: the rows of all tasks.
      count: how many lines there are for them.

    Returns:
      The rows, in their order, and a line about the others; "" if there are none.
    """
    if len(rows) <= count:
        return list(rows), ""
    ranked = sorted(rows, key=lambda row: (row.kind not in _URGENT, not row.is_lead))
    chosen = {row.task for row in ranked[: max(count - 1, 1)]}
    others = [row for row in rows if row.task not in chosen]
    shown = [row for row in rows if row.task in chosen]
    return shown, f"and {len(others):,} more tasks: {count_states(others)}"


class LiveTable:
    """Lines, and below them what there is to say of tasks, and the line of the job.

    Args:
      stream: the terminal.
      since: when the job began (`time.monotonic`), in seconds.
    """

    def __init__(self, stream: TextIO, since: float) -> None:
        self._console = Console(file=stream, highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )
        self._since = since
        self._terminal = _without_echo(stream)
        self._live.start()
        # The cursor stays visible, since a program that is killed could not show it again.
        self._console.show_cursor(True)
        self.draw(())

    def line(self, text: str) -> None:
        """Shows a line above the table, broken between words; a long path stays whole."""
        words = textwrap.TextWrapper(
            self._console.width, expand_tabs=False, break_long_words=False, break_on_hyphens=False
        )
        is_long = len(text) > self._console.width
        self._console.print(Text(words.fill(text) if is_long else text), soft_wrap=True)

    def draw(self, rows: Sequence[Row]) -> None:
        """Draws the rows that matter and the line of the job, between empty lines."""
        width = self._console.width - 1  # Some terminals wrap a line that fills them.
        room = max(self._console.height - _OTHER_LINES, 1)
        shown, others = fitting(those_that_differ(rows), room)
        texts = [others] if others else []
        texts.append(job_line(rows, time.monotonic() - self._since, width))
        lines = [Text(plain(text), "dim", no_wrap=True, overflow="ellipsis") for text in texts]
        table = [render(shown, width)] if shown else []
        self._live.update(Group(Text(), *table, *lines, Text()), refresh=True)

    def close(self) -> None:
        """Erases the table, so that the last lines are the last on the screen."""
        self._live.update(Text(), refresh=True)
        self._live.stop()
        _set_back(*self._terminal)


def _without_echo(stream: TextIO) -> tuple[int, Optional[list[Any]]]:
    """Keeps a terminal from showing keys: Enter would move the cursor away from the table.

    Returns:
      The terminal, and its earlier settings; None if they stay.
    """
    try:
        fd = stream.fileno()
        if os.tcgetpgrp(fd) != os.getpgrp():  # It would stop a process in the background.
            return fd, None
        before = termios.tcgetattr(fd)
    except (OSError, ValueError, termios.error):
        return -1, None
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    return fd, before


def _set_back(fd: int, before: Optional[list[Any]]) -> None:
    """Gives a terminal its earlier settings, unless it is gone or others use it by now."""
    with contextlib.suppress(OSError, termios.error):
        if before is not None and os.tcgetpgrp(fd) == os.getpgrp():
            termios.tcsetattr(fd, termios.TCSANOW, before)
