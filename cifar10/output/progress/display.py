"""Draws statuses on a stream: a live line for terminals, plain lines for anything else.

The methods that write run in the single writing thread of `ProgressLine`.
"""

import io
import os
import select
import time
from collections.abc import Sequence
from typing import Optional, TextIO, Union, cast

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cifar10.output.progress.text import MIN_BAR_WIDTH, TrainingStatus, fit_line, plain_line

_MAX_BAR_WIDTH = 40
_REDRAW_SECS = 0.1

Item = Union[TrainingStatus, str]  # a status or a message


class Output(io.TextIOBase):
    """Writes to a stream's file descriptor; after a write that fails, discards all text.

    It bypasses the stream's buffer: a thread that blocks in the buffer holds its lock, and the
    interpreter aborts at exit if that lock is held.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encoding = stream.encoding or "utf-8"
        self._broken = False
        self._fd: Optional[int] = None
        try:
            stream.flush()
            self._fd = os.dup(stream.fileno())
        except io.UnsupportedOperation:  # io.StringIO and its like
            pass
        except (OSError, ValueError):  # a closed pipe, a closed stream
            self._broken = True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's encoding; characters that it cannot encode become question marks."""
        return self._encoding

    def width(self) -> int:
        """Returns the columns of a line: one fewer than there are, since some terminals wrap."""
        try:
            columns = os.get_terminal_size(self._fd).columns if self._fd is not None else 0
        except OSError:
            columns = 0
        return (columns or 80) - 1

    def write(self, text: str) -> int:
        """Writes `text`; may wait for a slow reader, but does not raise if the reader has ended."""
        if not self._broken:
            try:
                self._write_bytes(text.encode(self._encoding, errors="replace"))
            except (OSError, ValueError):
                self._broken = True
        return len(text)

    def _write_bytes(self, data: bytes) -> None:
        if self._fd is None:
            self._stream.write(data.decode(self._encoding))
            return
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # Another process has made the terminal non-blocking.
                writable = select.poll()  # A task of a large cluster has too many for select().
                writable.register(self._fd, select.POLLOUT)
                writable.poll()

    def close(self) -> None:
        """Closes the duplicated file descriptor; the stream itself stays open."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._broken = True


class Display:
    """Plain lines: one for each status and each message."""

    def __init__(self, output: Output, total_steps: int, total_epochs: float) -> None:
        self._output = output
        self._total_steps = total_steps
        self._total_epochs = total_epochs

    def show(self, items: Sequence[Item]) -> None:
        """Writes a line for each item."""
        for item in items:
            if isinstance(item, str):
                self._output.write(item + "\n")
            else:
                line = plain_line(item, self._total_steps, self._total_epochs)
                self._output.write(line + "\n")

    def close(self) -> None:
        """Ends the display and closes its output."""
        self._output.close()


class LiveDisplay(Display):
    """A bar and the figures on one line that never wraps; messages go above it."""

    def __init__(
        self, output: Output, total_steps: int, total_epochs: float, start_step: int
    ) -> None:
        super().__init__(output, total_steps, total_epochs)
        self._start_step = start_step
        self._status: Optional[TrainingStatus] = None
        self._console = Console(
            file=cast(TextIO, output),
            force_terminal=True,
            force_interactive=True,
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            highlight=False,
            width=output.width(),
        )
        # Standard output and error are not redirected: another thread's print must neither block
        # with this display nor be written to its stream.
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def show(self, items: Sequence[Item]) -> None:
        """Writes the messages and draws the latest status, then sleeps for `_REDRAW_SECS`."""
        self._console.width = self._output.width()
        if not self._live.is_started:
            self._live.start()
            # Show the cursor, so that the shell has one even after SIGKILL.
            self._console.show_cursor(True)
        for item in items:
            if isinstance(item, str):
                self._console.print(Text(item), soft_wrap=True)
            else:
                self._status = item
        # An empty line below takes the ^C that a terminal echoes, which could wrap a full line.
        self._live.update(Group(self._render(), Text()), refresh=True)
        time.sleep(_REDRAW_SECS)

    def close(self) -> None:
        """Leaves the live line as it is and moves to the next line."""
        self._live.update(self._render(), refresh=True)
        self._live.stop()
        super().close()

    def _render(self) -> Table:
        width = self._output.width()
        step = self._start_step if self._status is None else self._status.step
        if self._status is None:
            text = Text(f"step {step:,}/{self._total_steps:,}  starting")
        else:
            text = fit_line(self._status, self._total_steps, self._total_epochs, width)
        grid = Table.grid(padding=(0, 1, 0, 0))
        bar_width = min(_MAX_BAR_WIDTH, width - text.cell_len - 1)
        cells: list[Union[ProgressBar, Text]] = [text]
        if bar_width >= MIN_BAR_WIDTH:
            grid.add_column(width=bar_width)
            cells.insert(0, ProgressBar(self._total_steps, step, width=bar_width))
        grid.add_column(no_wrap=True, overflow="crop")
        grid.add_row(*cells)
        return grid
