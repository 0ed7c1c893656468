"""Shows how far each host is: a bar for each on a terminal, and lines elsewhere."""

import sys
import threading
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from launch.screen.plain import plain

_LONGEST = 300  # characters of a text
_WIDEST = 30  # characters of a host's name
_BAR = 24  # characters


def _fixed(width: int) -> Column:
    return Column(width=width, no_wrap=True, overflow="ellipsis")


class Bars:
    """A bar for each host; threads may call the methods.

    Args:
      hosts: the names of the hosts.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._is_live = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._said: dict[str, str] = {}
        longest = min(_WIDEST, max(map(len, hosts), default=0))
        # Only the last column gives way where there is too little room.
        columns = (
            TextColumn("{task.fields[host]}", markup=False, table_column=_fixed(longest)),
            BarColumn(bar_width=_BAR, table_column=_fixed(_BAR)),
            TextColumn("{task.percentage:>3.0f} %", table_column=_fixed(5)),
            TimeElapsedColumn(table_column=_fixed(7)),
            TextColumn(
                "{task.fields[words]}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
        )
        self._progress = Progress(*columns, console=Console(highlight=False), expand=True)
        self._bars: dict[str, TaskID] = {}
        if self._is_live:
            for host in hosts:
                task = self._progress.add_task("", total=1.0, host=host, words="connecting")
                self._bars[host] = task
            self._progress.start()

    def show(self, host: str, part: float, words: str) -> None:
        """Sets a host's bar; without a terminal, does nothing.

        Args:
          host: the name of the host.
          part: the part that is done, from 0 to 1.
          words: what is being done.
        """
        if self._is_live:
            short = plain(words[:_LONGEST])
            self._progress.update(self._bars[host], completed=part, words=short)

    def line(self, host: str, words: str) -> None:
        """Shows a line that stays: above the bars on a terminal."""
        text = f"{host}: {plain(words[:_LONGEST])}"
        with self._lock:
            if self._is_live:
                self._progress.console.print(text, markup=False, highlight=False)
            else:
                print(text, flush=True)

    def end(self, host: str, words: str) -> None:
        """Stops a host's clock, with its last words."""
        if self._is_live:
            self._progress.update(self._bars[host], words=plain(words[:_LONGEST]))
            self._progress.stop_task(self._bars[host])

    def close(self) -> None:
        """Leaves the bars as they are."""
        if self._is_live:
            self._progress.stop()
