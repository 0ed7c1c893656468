"""Tables, drawn by rich: those that are printed once, and the live one below a job's lines."""

import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TextIO

from rich.console import Console, Group
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launch.screen.row import Row, job_line, plain, those_that_differ

_STYLES = {"failed": "bold red", "restarting": "yellow", "stopping": "yellow", "running": "green"}
_FILE_WIDTH = 200  # columns of a table in a file, which no width limits
_TASKS = ("task", "host", "state", "step", "last line")


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table on standard output.

    Args:
      titles: the titles of the columns.
      rows: the texts of each row, which may have fewer cells.
    """
    console = Console(highlight=False)
    if not (console.is_terminal and console.width):
        console.width = _FILE_WIDTH
    console.print(_table(titles, rows))


def print_tasks(rows: Sequence[Row]) -> None:
    """Prints the table of a job's tasks on standard output."""
    print_table(_TASKS, map(_cells, rows))


def _cells(row: Row) -> tuple[str, ...]:
    return astuple(row)[: len(_TASKS)]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for title in titles:
        # The last lines of tasks give way first.
        table.add_column(_cell(title), no_wrap=title != _TASKS[-1])
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(text: str) -> Text:
    style = _STYLES.get(text.partition(" ")[0], "")
    return Text(plain(text), style, no_wrap=True, overflow="ellipsis")


class LiveTable:
    """Lines, and below them the line of the job and what there is to say of tasks.

    Args:
      stream: the terminal.
      began: when the job began (`time.time`), in seconds.
    """

    def __init__(self, stream: TextIO, began: float) -> None:
        self._console = Console(file=stream, highlight=False)
        if not self._console.width:  # COLUMNS=0
            self._console.width = 80
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )
        self._began = began
        self._live.start()
        # The cursor stays visible, since a program that is killed could not show it again.
        self._console.show_cursor(True)
        self.draw(())

    def line(self, text: str) -> None:
        """Shows a line above the table, broken between words: a long path stays whole."""
        width = self._console.width
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        self._console.print(Text("\n".join(lines)), soft_wrap=True)

    def draw(self, rows: Sequence[Row]) -> None:
        """Draws the line of the job and the rows that matter, as many as fit on the screen."""
        # Some terminals wrap a line that fills them.
        secs, width = time.time() - self._began, self._console.width - 1
        bar = "━─" if self._console.encoding.startswith("utf") else "#-"
        line = Text(plain(job_line(rows, secs, width, bar)), "dim")
        shown = those_that_differ(rows)
        table = [_table(_TASKS, map(_cells, shown))] if shown else []
        frame = Constrain(Group(Text(), line, *table, Text()), width)
        self._live.update(frame, refresh=True)

    def close(self) -> None:
        """Erases the table, so that the last lines are the last on the screen."""
        self._live.update(Text(), refresh=True)
        self._live.stop()
