"""Shows the progress of training: a live line on a terminal, plain lines anywhere else.

Training must not wait for output, so `show` only adds to a queue, and one thread
writes. If a terminal blocks, lines are dropped; if the reader of a pipe ends, output stops but
training continues.
"""

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any, Union

from cifar10_program.streams import format_duration

_BACKLOG = 1_000  # Limit of the queue's length; further lines are dropped.
_CLOSE_SECS = 2.0  # How long `close` waits for a terminal that blocks.
_ERASE = "\r\x1b[K"  # the line in which the cursor is
_BAR_WIDTH = 10
# The metrics of the live line, of which a narrow terminal shows those that fit.
_LIVE = ("epoch", "loss", "accuracy", "left", "speed", "step", "rate")


# The state of training after some steps: global `step`, `epoch`, and of the steps since the status
# before: means `loss` and `accuracy` (from 0 to 1), `images_per_sec` of the whole job, and in a
# cluster `own_images_per_sec`; `learning_rate` of the last one; `seconds_left`, None: unknown.
Status = Mapping[str, Any]


class ProgressLine:
    """The progress of one training run, on standard output.

    A terminal gets one line that is redrawn in place, with a bar; a pipe, a file, a CI job or a
    terminal with TERM=dumb gets one plain line for each status, so the caller sets their rate.

    Args:
      total_steps: global step at which training ends.
      total_epochs: number of epochs that training has at its end; may be fractional.
      start_step: global step from which this run continues.

    Attributes:
      total_steps: the argument `total_steps`.
      total_epochs: the argument `total_epochs`.
      live: whether a line is redrawn in place, so that a status may be shown often.
    """

    def __init__(self, total_steps: int, total_epochs: float, start_step: int = 0) -> None:
        self._stream, self._is_broken = sys.stdout, False
        is_dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("CI"))
        self.live = self._stream.isatty() and not is_dumb
        self._bar = "━─"
        try:
            self._bar.encode(self._stream.encoding or "utf-8")
        except UnicodeEncodeError:
            self._bar = "#-"
        self.total_steps, self.total_epochs = total_steps, total_epochs
        self._step = start_step
        self._texts = {"step": f"step {start_step:,}/{total_steps:,}  starting"}
        self._queue: queue.Queue[Union[Status, str, None]] = queue.Queue(_BACKLOG)
        # A daemon, since it may wait for the reader when the process ends.
        self._thread = threading.Thread(target=self._write_all, name="progress", daemon=True)
        self._thread.start()

    def show(self, item: Union[Status, str, None]) -> None:
        """Shows a status, or a text as a line of its own, above the live line if there is one.

        It returns immediately, even if the output blocks. None is the end.
        """
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(item)

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Writes what is in the queue and ends the live line."""
        self.show(None)
        self._thread.join(_CLOSE_SECS)

    def _write_all(self) -> None:
        self._draw()  # Now: the first step may take a minute.
        while (item := self._queue.get()) is not None:
            if isinstance(item, str):
                self._write(f"{_ERASE if self.live else ''}{item}\n")
            else:
                self._step = item["step"]
                self._texts = _texts(item, self.total_steps, self.total_epochs)
                if not self.live:
                    self._write("  ".join(self._texts.values()) + "\n")
            self._draw()
        if self.live:
            self._write("\n")

    def _draw(self) -> None:
        """Draws the live line; the cursor stays at its end, where a terminal echoes ^C."""
        if self.live:
            try:
                width = os.get_terminal_size(self._stream.fileno()).columns - 2
            except OSError:
                width = 78
            done = min(_BAR_WIDTH * self._step // max(self.total_steps, 1), _BAR_WIDTH)
            line = self._bar[0] * done + self._bar[1] * (_BAR_WIDTH - done)
            for name in filter(self._texts.__contains__, _LIVE):
                longer = f"{line}  {self._texts[name]}"
                line = longer if len(longer) <= width else line
            self._write(_ERASE + line)

    def _write(self, text: str) -> None:
        """Writes text, or nothing after a write that failed."""
        if not self._is_broken:
            try:
                self._stream.write(text)
                self._stream.flush()
            except BlockingIOError:
                pass  # Another process has made the terminal so; the next flush writes the rest.
            except (OSError, ValueError):
                self._is_broken = True


def _texts(status: Status, total_steps: int, total_epochs: float) -> dict[str, str]:
    """Returns the texts of a plain line by name, in their order."""
    step, epoch, loss = status["step"], status["epoch"], status["loss"]
    # Of several asynchronous trainers, some may take a step after the last one.
    epochs = f"{max(total_epochs, epoch):.1f}".removesuffix(".0")
    speed, own = status["images_per_sec"], status.get("own_images_per_sec")
    texts = {
        "epoch": f"epoch {epoch:.1f}/{epochs}",
        "step": f"step {step:,}/{max(total_steps, step):,}",
        "loss": f"loss {loss:{'.3f' if abs(loss) < 1_000 else '.3g'}}",
        "accuracy": f"accuracy {status['accuracy']:.3f}",
        "rate": f"lr {status['learning_rate']:#.3g}",
        "speed": f"{_rate(speed)} images/s" + (f" ({_rate(own)} here)" if own else ""),
    }
    if status["seconds_left"]:  # There is no estimate at first, and none is needed at the end.
        texts["left"] = f"{format_duration(status['seconds_left'])} left"
    return texts


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
