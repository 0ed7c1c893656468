"""Shows the progress of training: a live line on a terminal, plain lines anywhere else.

Training must not wait for output, so `update` and `message` only add to a queue, and one thread
writes. If a terminal blocks, lines are dropped; if the reader of a pipe ends, output stops but
training continues.
"""

import atexit
import contextlib
import io
import math
import os
import queue
import select
import sys
import threading
import time
from dataclasses import dataclass
from typing import Optional, TextIO, Union

_BACKLOG = 1_000  # Limit of the queue's length; further lines are dropped.
_CLOSE_SECS = 2.0  # How long `close` waits for a terminal that blocks.
_REDRAW_SECS = 0.1
_ERASE = "\r\x1b[K"  # the line in which the cursor is
_MIN_BAR_WIDTH, _MAX_BAR_WIDTH = 4, 40


@dataclass(frozen=True)
class TrainingStatus:
    """The state of training at a step.

    Attributes:
      step: global step.
      epoch: completed epochs.
      loss: mean loss since the previous status.
      accuracy: mean training accuracy since the previous status, from 0 to 1.
      learning_rate: learning rate of the step.
      images_per_sec: training images per second of the whole job.
      seconds_left: estimated seconds until training ends; None if there is no estimate.
      own_images_per_sec: training images per second of this process; None if it trains alone.
    """

    step: int
    epoch: float
    loss: float
    accuracy: float
    learning_rate: float
    images_per_sec: float
    seconds_left: Optional[float]
    own_images_per_sec: Optional[float] = None


class ProgressLine:
    """The progress of one training run, on one stream.

    A terminal gets one line that is redrawn in place, with a bar; a pipe, a file, a CI job or a
    terminal with TERM=dumb gets one plain line for each `update`, so the caller sets their rate.
    Text that was printed to `stream` earlier appears first.

    Args:
      total_steps: global step at which training ends.
      total_epochs: number of epochs that training has at its end; may be fractional.
      stream: stream to write to; None: `sys.stdout`, which in a notebook has no descriptor.
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
                        self._write("  ".join(_figures(status, *self._totals).values()) + "\n")
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
            self._write(_ERASE + _live_line(status, *self._totals, width))

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


def format_duration(seconds: float) -> str:
    """Formats a time span in its two largest units: `42s`, `4m12s`, `1h03m`, `2d04h`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, secs = divmod(max(0, round(seconds)), 60)
    hours, mins = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d{hours % 24:02d}h"
    if hours:
        return f"{hours}h{mins:02d}m"
    return f"{minutes}m{secs:02d}s" if minutes else f"{secs}s"


def _figures(status: TrainingStatus, total_steps: int, total_epochs: float) -> dict[str, str]:
    """Returns the figures of a line by name, in their order."""
    # Of several asynchronous trainers, some may take a step after the last one.
    epochs = f"{max(total_epochs, status.epoch):.1f}".removesuffix(".0")
    own = f" ({_rate(status.own_images_per_sec)} here)" if status.own_images_per_sec else ""
    figures = {
        "epoch": f"epoch {status.epoch:.1f}/{epochs}",
        "step": f"step {status.step:,}/{max(total_steps, status.step):,}",
        "loss": f"loss {status.loss:{'.3f' if abs(status.loss) < 1_000 else '.3g'}}",
        "accuracy": f"accuracy {status.accuracy:.3f}",
        "rate": f"lr {status.learning_rate:#.3g}",
        "speed": f"{_rate(status.images_per_sec)} images/s{own}",
    }
    if status.seconds_left:  # There is no estimate at first, and none is needed at the end.
        figures["left"] = f"{format_duration(status.seconds_left)} left"
    return figures


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _live_line(
    status: Union[TrainingStatus, int], total_steps: int, total_epochs: float, width: int
) -> str:
    """Returns a line with a bar and as many figures as fit in `width` columns.

    Args:
      status: what to show; before the first one, the global step from which training continues.
      total_steps: global step at which training ends.
      total_epochs: epochs at the end of training.
      width: columns of the terminal.
    """
    if isinstance(status, int):
        step, text = status, f"step {status:,}/{total_steps:,}  starting"
    else:
        step, figures = status.step, _figures(status, total_steps, total_epochs)
        for name in ("", "rate", "step", "speed", "accuracy", "left", "loss"):
            figures.pop(name, None)
            text = "  ".join(figures.values())
            if len(text) + 1 + _MIN_BAR_WIDTH <= width:
                break
    bar_width = min(_MAX_BAR_WIDTH, width - len(text) - 1)
    if bar_width < _MIN_BAR_WIDTH:
        return text[:width]
    done = min(bar_width * step // max(total_steps, 1), bar_width)
    return f"{'━' * done}{'─' * (bar_width - done)} {text}"
