"""Tables drawn by rich: the live one, in the display's own thread, and those printed once."""

import queue
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launch.screen.plain import plain
from launch.screen.row import Item, Row

_STYLES = {"running": "green", "done": "dim", "failed": "bold red", "restarting": "yellow"}


def show_live(stream: TextIO, items: "queue.SimpleQueue[Item]") -> None:
    """Draws the latest table and the lines above it, until None comes from the queue."""
    console = Console(file=stream, highlight=False)
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with live:
        # The cursor stays visible, since a launcher that is killed could not show it again.
        console.show_cursor(True)
        while True:
            item = items.get()
            if item is None:
                return
            if isinstance(item, str):
                console.print(Text(item), soft_wrap=True)
            else:
                live.update(render(item), refresh=True)


def cell(text: str) -> Text:
    """Returns a cell with text of any program."""
    return Text(plain(text))


def print_table(table: Table) -> None:
    """Prints a table once, on standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200  # a file has no width that limits it
    console.print(table)


def render(rows: Sequence[Row]) -> Table:
    """Returns the table of all tasks; the column of last lines takes the remaining width."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    for name in ("task", "host", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("step", "images/s"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("last line", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        state = Text(plain(row.state), _STYLES.get(row.state.partition(" ")[0], ""))
        others = (row.step, row.images_per_sec, row.last)
        table.add_row(cell(row.task), cell(row.host), state, *map(cell, others))
    return table
