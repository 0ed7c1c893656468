"""The table of a job's tasks, as wide as the terminal allows, drawn by rich."""

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launch.screen.job_line import count_states, own_words
from launch.screen.plain import plain
from launch.screen.row import Row

_STYLES = {
    "running": "green",
    "done": "dim",
    "stopped": "dim",
    "failed": "bold red",
    "restarting": "yellow",
    "stopping": "yellow",
}
_GAP = 2  # spaces between two columns
_MIN_WORDS = 40  # the least width of the last column; other columns are left out for it
_LAST = "last line"
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "task": lambda row: row.task,
    "host": lambda row: row.host,
    "state": lambda row: row.state,
    "step": lambda row: row.step,
    _LAST: own_words,
}
_LEFT_OUT_FIRST = ("host", "step")
# Which rows stay if the screen is too low for all.
_URGENT = ("failed", "restarting", "stopping", "starting", "waiting")


def cell(text: str) -> Text:
    """Returns a cell with text of any program."""
    return Text(plain(text))


def print_table(table: Table) -> None:
    """Prints a table once, on standard output."""
    console = stdout_console()
    console.print(table)


def stdout_console() -> Console:
    """Returns a console for what is printed once; a file has no width that limits it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    return console


def render(rows: Sequence[Row], width: int) -> Table:
    """Returns the table of all tasks.

    Columns that matter less are left out where the last one would have too little room.

    Args:
      rows: the rows of all tasks.
      width: the columns of the terminal.
    """
    texts = {name: [plain(text(row)) for row in rows] for name, text in _COLUMNS.items()}
    widths = {name: max(map(cell_len, [name, *column])) for name, column in texts.items()}
    rest = width - sum(widths[name] + _GAP for name in texts if name != _LAST)
    for name in _LEFT_OUT_FIRST:
        if rest < min(_MIN_WORDS, widths[_LAST]):
            del texts[name]
            rest += widths[name] + _GAP
    if "step" in texts:
        texts["step"] = [text.rjust(widths["step"]) for text in texts["step"]]
    table = Table(box=None, padding=0, header_style="dim")
    # The gaps are in the texts: rich would add its padding to the width of the last column, too.
    gaps = {name: "" if name == _LAST else _GAP * " " for name in texts}
    for name, gap in gaps.items():
        limit = max(rest, 1) if name == _LAST else None
        table.add_column(name + gap, no_wrap=True, overflow="ellipsis", max_width=limit)
    for row, *cells in zip(rows, *texts.values()):
        styles = {"state": _STYLES.get(row.state.partition(" ")[0], "")}
        table.add_row(
            *(Text(text + gaps[name], styles.get(name, "")) for name, text in zip(texts, cells))
        )
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

    def rank(row: Row) -> int:
        is_urgent = row.state.partition(" ")[0] in _URGENT
        return 0 if is_urgent else 1 if row.is_lead else 2

    chosen = {row.task for row in sorted(rows, key=rank)[: max(count - 1, 1)]}
    others = [row for row in rows if row.task not in chosen]
    shown = [row for row in rows if row.task in chosen]
    return shown, f"and {len(others):,} more tasks: {count_states(others)}"
