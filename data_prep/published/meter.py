"""Shows the progress of a download on stderr: a bar on a terminal, else a line every 10 %."""

import sys
from types import TracebackType
from typing import Optional

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cifar10_program.streams import complain


class Meter:
    """Shows how much of a file has arrived; a context manager.

    Args:
      name: name of the file, for display.
      total: size of the file in bytes.
    """

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._tenths = name, total, 0
        self._bar: Optional[Progress] = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(name, total=total)

    def __enter__(self) -> "Meter":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int) -> None:
        """Shows that `done` bytes of the file have arrived."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
            return
        tenths = done * 10 // self._total
        if tenths > self._tenths:
            self.say(f"{tenths * 10} % of {self._total / 1e6:,.0f} MB")
        self._tenths = tenths

    def say(self, line: str) -> None:
        """Prints a line without disturbing the bar."""
        if self._bar is not None:
            self._bar.console.print(f"{self._name}: {line}", markup=False, highlight=False)
        else:
            complain(f"{self._name}: {line}")
