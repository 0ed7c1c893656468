"""Shows the progress of training: a live line on a terminal, plain lines anywhere else.

Training must not wait for output, so `update` and `message` only add to a queue, and one thread
writes. If a terminal blocks, lines are dropped; if the reader of a pipe ends, output stops but
training continues.
"""

import atexit
import os
import queue
import sys
import threading
from typing import Optional, TextIO

from cifar10.output.progress.display import Display, Item, LiveDisplay, Output
from cifar10.output.progress.text import TrainingStatus, format_duration

__all__ = ["ProgressLine", "TrainingStatus", "format_duration"]

_BACKLOG = 1_000  # Limit of the queue's length; further lines are dropped.
_CLOSE_SECS = 2.0  # How long `close` waits for a terminal that blocks.


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
        self.live = _is_live(stream)
        output = Output(stream)
        self._display = (
            LiveDisplay(output, total_steps, total_epochs, start_step)
            if self.live
            else Display(output, total_steps, total_epochs)
        )
        # A SimpleQueue may be used inside a signal handler, unlike a lock.
        self._queue: queue.SimpleQueue[Optional[Item]] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="progress", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def update(self, status: TrainingStatus) -> None:
        """Shows `status`; returns immediately, even if the output blocks."""
        if not self._closed and self._queue.qsize() < _BACKLOG:
            self._queue.put(status)

    def message(self, text: str) -> None:
        """Prints `text` as a line of its own, above the live line if there is one."""
        if not self._closed and self._queue.qsize() < _BACKLOG:
            self._queue.put(text)

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
        self._display.show([])  # Draws the live line now: the first step may take a minute.
        open_ended = True
        while open_ended:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            open_ended = None not in waiting
            self._display.show([item for item in waiting if item is not None])
        self._display.close()


def _is_live(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
