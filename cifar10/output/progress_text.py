"""The text of a progress line: as many figures of a status as fit in its width."""

import math
import os
import re
from dataclasses import dataclass
from typing import Optional, Union

_MIN_BAR_WIDTH, _MAX_BAR_WIDTH = 4, 40
_DIM, _BOLD, _DONE, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[35m", "\x1b[0m"
_FIGURE = re.compile(r"\d\S*")

# Figures of a line and the least width of its bar, from the widest layout to the narrowest; the
# first layout that fits is used.
_ALL = ("epoch", "step", "loss", "accuracy", "lr", "images/s", "left")
_LAYOUTS = (
    (_ALL, 16),
    (("epoch", "step", "loss", "accuracy", "images/s", "left"), 8),
    (("epoch", "step", "loss", "acc", "img/s", "left"), _MIN_BAR_WIDTH),
    (("epoch", "of steps", "loss", "acc", "img/s", "time"), _MIN_BAR_WIDTH),
    (("epoch", "loss", "acc", "img/s", "time"), _MIN_BAR_WIDTH),
    (("of epochs", "loss", "acc", "time"), 0),
    (("of epochs", "loss"), 0),
)


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


def format_duration(seconds: float) -> str:
    """Formats a time span in its two largest units: `42s`, `4m12s`, `1h03m`, `2d04h`."""
    if not math.isfinite(seconds):
        return "?"
    whole = max(0, round(seconds))
    minutes, secs = divmod(whole, 60)
    hours, mins = divmod(minutes, 60)
    days, hrs = divmod(hours, 24)
    if days:
        return f"{days}d{hrs:02d}h"
    if hours:
        return f"{hours}h{mins:02d}m"
    return f"{minutes}m{secs:02d}s" if minutes else f"{secs}s"


def _pieces(status: TrainingStatus, total_steps: int, total_epochs: float) -> dict[str, str]:
    # Of several asynchronous trainers, some may take a step after the last one.
    epochs = f"{status.epoch:.1f}/{_short(max(total_epochs, status.epoch))}"
    steps = f"{status.step:,}/{max(total_steps, status.step):,}"
    images = _rate(status.images_per_sec)
    own = f" ({_rate(status.own_images_per_sec)} here)" if status.own_images_per_sec else ""
    pieces = {
        "epoch": f"epoch {epochs}",
        "of epochs": epochs,
        "step": f"step {steps}",
        "of steps": steps,
        "loss": f"loss {status.loss:{'.3f' if abs(status.loss) < 1_000 else '.3g'}}",
        "accuracy": f"accuracy {status.accuracy:.3f}",
        "acc": f"acc {status.accuracy:.3f}",
        "lr": f"lr {status.learning_rate:#.3g}",
        "images/s": f"{images} images/s{own}",
        "img/s": f"{images} img/s",
    }
    if status.seconds_left:  # There is no estimate at first, and none is needed at the end.
        pieces["time"] = format_duration(status.seconds_left)
        pieces["left"] = f"{pieces['time']} left"
    return pieces


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _join(pieces: dict[str, str], layout: tuple[str, ...]) -> str:
    return "  ".join(pieces[name] for name in layout if name in pieces)


def plain_line(status: TrainingStatus, total_steps: int, total_epochs: float) -> str:
    """Returns a line with all figures, without style."""
    return _join(_pieces(status, total_steps, total_epochs), _ALL)


def live_line(
    status: Union[TrainingStatus, int], total_steps: int, total_epochs: float, width: int
) -> str:
    """Returns the widest line that fits in `width` columns with its bar, or else the narrowest.

    Args:
      status: what to show; before the first one, the global step from which training continues.
      total_steps: global step at which training ends.
      total_epochs: epochs at the end of training.
      width: columns of the terminal.
    """
    if isinstance(status, int):
        step, text = status, f"step {status:,}/{total_steps:,}  starting"
    else:
        step, pieces = status.step, _pieces(status, total_steps, total_epochs)
        for layout, bar_width in _LAYOUTS:
            text = _join(pieces, layout)
            if len(text) + (1 + bar_width if bar_width else 0) <= width:
                break
    bar_width = min(_MAX_BAR_WIDTH, width - len(text) - 1)
    done = min(bar_width * step // max(total_steps, 1), bar_width)
    if os.environ.get("NO_COLOR") or len(text) > width:
        bar = f"{'━' * done}{' ' * (bar_width - done)} "
        return ((bar if bar_width >= _MIN_BAR_WIDTH else "") + text)[:width]
    bar = f"{_DONE}{'━' * done}{_PLAIN}{_DIM}{'━' * (bar_width - done)}{_PLAIN} "
    figures = _FIGURE.sub(rf"{_PLAIN}{_BOLD}\g<0>{_PLAIN}{_DIM}", text)
    return f"{bar if bar_width >= _MIN_BAR_WIDTH else ''}{_DIM}{figures}{_PLAIN}"
