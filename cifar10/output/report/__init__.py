"""Renders `report.html`: a self-contained page that shows how training went.

The page contains its style and pictures, and makes no requests. Its curves load matplotlib, which
takes half as long as loading TensorFlow.
"""

import base64
import contextlib
import io
import math
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
from PIL import Image

from cifar10.output.progress import format_duration
from cifar10_program.streams import log_error, one_line

_HERE = Path(__file__).parent
_Z_95 = 1.959964  # the 97.5 % point of the normal distribution
_INK, _LINE = "#5b6472", "#e4e7ec"
_CURVES = {"train": "#2563eb", "validation": "#d9660b"}
_CHARTS = {
    "Loss": "loss",
    "Accuracy": "accuracy",
    "Learning rate": "learning_rate",
    "Images per second": "images_per_sec",
}
_MAX_MARKERS = 40


@dataclass(frozen=True, eq=False)
class Mistake:
    """One misclassified image.

    Attributes:
      index: index of the record in the eval split, from 0.
      image: uint8 [32, 32, 3].
      label: index of the true class.
      predicted: index of the predicted class.
      probability: probability that the network gave the predicted class.
      label_probability: probability that the network gave the true class.
    """

    index: int
    image: npt.NDArray[np.uint8]
    label: int
    predicted: int
    probability: float
    label_probability: float


def load() -> None:
    """Loads what pictures and the page need.

    Matplotlib keeps a list of fonts in the user's home. Where there is none to write to, as for a
    container's user without an entry in /etc/passwd, it gets a folder for as long as it loads.
    What fails, fails again in drawing, which says so.
    """
    home = os.path.expanduser("~")
    has_home = home != "~" and os.access(home, os.W_OK)
    with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as folder:
        if "MPLCONFIGDIR" not in os.environ and not has_home:
            os.environ["MPLCONFIGDIR"] = folder
        try:
            import jinja2  # noqa: F401
            import matplotlib.colors
            import matplotlib.figure  # noqa: F401
        finally:
            if os.environ.get("MPLCONFIGDIR") == folder:
                del os.environ["MPLCONFIGDIR"]


def png_of(image: npt.NDArray[np.uint8]) -> bytes:
    """Encodes uint8 [height, width, 3] as PNG."""
    buffer = io.BytesIO()
    # Without `optimize`, which takes ten times as long for one per cent of the bytes.
    Image.fromarray(np.ascontiguousarray(image, dtype=np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def render_report(result: Mapping[str, Any], mistakes: Sequence[Mistake]) -> str:
    """Renders the report of one training as a self-contained HTML page.

    It has no curves if drawing them fails, which a line on standard error says then.

    Args:
      result: the content of `result.json`.
      mistakes: the misclassified images to show, in order.

    Returns:
      The page's text, to be written as UTF-8.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"percent": _percent, "count": _count, "picture": _picture, "png": png_of}
    environment.filters.update(filters, duration=format_duration)
    curves = None
    try:
        curves = curves_png(result["history"])
    except Exception as error:  # Whatever it is, the page's metrics are worth more.
        log_error(one_line(f"the report has no curves: {type(error).__name__}: {error}"))
    return environment.get_template("report.html.j2").render(
        result=result,
        command=shlex.join(result["command"]),
        curves=curves,
        interval=_interval(result["figures"]),
        mistakes=mistakes,
    )


def _picture(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _percent(share: Optional[float], digits: int = 2) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}\u202f%"


def _count(value: Optional[float]) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _interval(metrics: Mapping[str, Any]) -> str:
    """Returns the 95 % confidence interval of the accuracy, for example `90.7 to 91.8 %`.

    Source: the score interval of Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    accuracy, spread = metrics["eval_accuracy"], _Z_95**2 / metrics["eval_examples"]
    middle = (accuracy + spread / 2) / (1 + spread)
    half = math.sqrt(accuracy * (1 - accuracy) * spread + spread**2 / 4) / (1 + spread)
    return f"{100 * (middle - half):.1f} to {_percent(middle + half, 1)}"


def curves_png(history: Mapping[str, Sequence[Mapping[str, Any]]]) -> bytes:
    """Draws loss, accuracy, learning rate and speed against epochs.

    Args:
      history: the rows of `train` and of `validation`; what is missing or not finite is a gap.

    Returns:
      A PNG, 2160 by 1280 pixels.
    """
    load()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.8, 6.4), dpi=200, layout="constrained")
    for axes, (title, key) in zip(figure.subplots(2, 2).flat, _CHARTS.items()):
        for split, colour in _CURVES.items():
            epochs, values = _column(history[split], "epoch"), _column(history[split], key)
            if np.isfinite(values).any():
                marker = "o" if len(values) <= _MAX_MARKERS else None
                axes.plot(epochs, values, colour, lw=1.4, label=split, marker=marker, ms=3)
                axes.legend(frameon=False, labelcolor=_INK)
        axes.set_title(title, loc="left", fontsize=11, fontweight="semibold")
        axes.set_xlabel("epoch", color=_INK)
        axes.spines[:].set_visible(False)
        axes.grid(axis="y", color=_LINE)
        axes.tick_params(length=0, labelcolor=_INK)
        axes.set_ylim(bottom=0 if key in ("learning_rate", "images_per_sec") else None)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """Returns a column of rows, float64 [n]; values missing or not finite become NaN."""
    values = np.array([row.get(name, math.nan) for row in rows], dtype=np.float64)
    return np.where(np.isfinite(values), values, math.nan)
