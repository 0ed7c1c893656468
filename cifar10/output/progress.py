"""Shows the progress of training: a live line on a terminal, plain lines anywhere else.

Training must not wait for output, so `update` and `message` only add to a queue, and one thread
writes. If a terminal blocks, lines are dropped; if the reader of a pipe ends, output stops but
training continues.
"""

import atexit
import contextlib
import io
import os
import queue
import select
import sys
import threading
import time
from typing import Optional, TextIO, Union

from cifar10.output.progress_text import TrainingStatus, format_duration, live_line, plain_line

__all__ = ["ProgressLine", "TrainingStatus", "format_duration"]

_BACKLOG = 1_000  # Limit of the queue's length; further lines are dropped.
_CLOSE_SECS = 2.0  # How long `close` waits for a terminal that blocks.
_REDRAW_SECS = 0.1
_ERASE = "\r\x1b[K"  # the line in which the cursor is


class ProgressLine:
    """The progress of one training run, on one stream.

    A terminal gets one line that is redrawn in place, with a bar; a pipe, a file, a CI job or a
    terminal with TERM=dumb gets one plain line for each `update`, so the caller sets their rate.
    NO_COLOR is respected. Text that was printed to `stream` earlier appears first.

    Args:
      total_steps: global step at which training ends.
      total_epochs: number of epochs that training has at its end; may be fractional.
      stream: stream to write to; None: `sys.stdout`.
      start_step: global step from which this run continues.

    Attributes:
      live: whether a line is redrawn in place, so that `update` may be called often.
    """

    def __init__(
        self,
        total_steps: int,
        total_epochs: float,
        stream: Optional[TextIO] = None,
        start_step: int = 0,
    ) -> None:
        stream = sys.stdout if stream is None else stream
        is_dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("CI"))
        self.live = stream.isatty() and not is_dumb
        self._totals, self._start_step = (total_steps, total_epochs), start_step
        self._stream, self._encoding = stream, stream.encoding or "utf-8"
        self._fd, self._is_broken = -1, False
        try:
            stream.flush()
            self._fd = os.dup(stream.fileno())
        except (OSError, ValueError) as error:  # a closed pipe, a closed stream
            # io.StringIO and its like have no descriptor, but can be written to.
            self._is_broken = not isinstance(error, io.UnsupportedOperation)
        # A SimpleQueue may be used inside a signal handler, unlike a lock.
        self._queue: queue.SimpleQueue[Union[TrainingStatus, str, None]] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="progress", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def update(self, status: TrainingStatus) -> None:
        """Shows `status`; returns immediately, even if the output blocks."""
        self._put(status)

    def message(self, text: str) -> None:
        """Prints `text` as a line of its own, above the live line if there is one."""
        self._put(text)

    def _put(self, item: Union[TrainingStatus, str]) -> None:
        if not self._closed and self._queue.qsize() < _BACKLOG:
            self._queue.put(item)

    def close(self) -> None:
        """Writes what is in the queue and ends the live line; later calls have no effect."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._thread.join(_CLOSE_SECS)
        atexit.unregister(self.close)

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _write_all(self) -> None:
        status: Union[TrainingStatus, int] = self._start_step
        self._draw(status)  # Now: the first step may take a minute.
        is_open = True
        while is_open:
            items = [self._queue.get()]
            while not self._queue.empty():
                items.append(self._queue.get())
            is_open = None not in items
            for item in items:
                if isinstance(item, str):
                    self._write(f"{_ERASE if self.live else ''}{item}\n")
                elif item is not None:
                    status = item
                    if not self.live:
                        self._write(plain_line(status, *self._totals) + "\n")
            self._draw(status)
            if self.live and is_open:
                time.sleep(_REDRAW_SECS)
        if self.live:
            self._write("\n")
        if self._fd >= 0:
            os.close(self._fd)

    def _draw(self, status: Union[TrainingStatus, int]) -> None:
        """Draws the live line; the cursor stays at its end, where a terminal echoes ^C."""
        if self.live:
            try:
                width = os.get_terminal_size(self._fd).columns - 2
            except OSError:
                width = 78
            self._write(_ERASE + live_line(status, *self._totals, width))

    def _write(self, text: str) -> None:
        """Writes text, but not by the stream's buffer, or nothing after a write that failed.

        A thread that waits in that buffer holds its lock, and the interpreter aborts at exit if
        that lock is held.
        """
        data = b"" if self._is_broken else text.encode(self._encoding, errors="replace")
        try:
            if self._fd < 0:
                self._stream.write(data.decode(self._encoding))
                return
            while data:
                select.select((), (self._fd,), ())
                with contextlib.suppress(BlockingIOError):  # Another process uses it, too.
                    data = data[os.write(self._fd, data) :]
        except (OSError, ValueError):
            self._is_broken = True
