"""Renders `report.html`, a page that shows how training went, and a page that compares runs.

A page contains its style and pictures, and makes no requests. Its curves load matplotlib, which
takes half as long as loading TensorFlow.
"""

import base64
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

from cifar10.image_decoding import png_of
from cifar10_program.streams import format_duration, log_error, one_line

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
_TRAINED = ("learning_rate", "images_per_sec")  # Only rows of training have them.
_OF_EACH_RUN = ("output_dir", "log_dir", "learning_rate_batch")
_MAX_MARKERS = 40
_MOST_CELLS = 20  # classes whose confusion matrix is a table; that of more is a picture
_FREQUENT = 20


History = Mapping[str, Sequence[Mapping[str, Any]]]


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


def load_figure() -> Any:
    """Loads matplotlib, and returns its class `Figure`.

    Matplotlib keeps a list of fonts in the user's home. Where there is none to write to, as for a
    container's user without an entry in /etc/passwd, it gets a folder for as long as it loads.
    """
    home = os.path.expanduser("~")
    has_home = home != "~" and os.access(home, os.W_OK)
    with tempfile.TemporaryDirectory() as folder:
        if "MPLCONFIGDIR" not in os.environ and not has_home:
            os.environ["MPLCONFIGDIR"] = folder
        try:
            from matplotlib.figure import Figure

            return Figure
        finally:
            if os.environ.get("MPLCONFIGDIR") == folder:
                del os.environ["MPLCONFIGDIR"]


def _environment() -> Any:
    """Returns what renders the pages."""
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
    return environment


def render_report(result: Mapping[str, Any], mistakes: Sequence[Mistake]) -> str:
    """Renders the report of one training as a self-contained HTML page.

    It has no curves if drawing them fails, which a line on standard error says then.

    Args:
      result: the content of `result.json`.
      mistakes: the misclassified images to show, in order.

    Returns:
      The page's text, to be written as UTF-8.
    """
    curves = None
    try:
        curves = draw_curves({"": result["history"]})
    except Exception as error:  # Whatever it is, the page's figures are worth more.
        log_error(one_line(f"the report has no curves: {type(error).__name__}: {error}"))
    matrix = np.array(result["confusion_matrix"])
    template = _environment().get_template("report.html.j2")
    return template.render(
        result=result,
        heat_map=_heat_map(matrix) if len(matrix) > _MOST_CELLS else None,
        frequent_mistakes=_frequent_mistakes(matrix),
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


def draw_curves(runs: Mapping[str, History]) -> dict[str, bytes]:
    """Draws loss, accuracy, learning rate and speed against epochs.

    Args:
      runs: for each run, by the name of its output folder, the rows of `train` and of `validation`;
        what is missing or not finite is a gap.

    Returns:
      PNGs by title, 1080 by 640 pixels each: two stand side by side, on a phone they do not.
    """
    make_figure, pictures = load_figure(), {}
    for title, key in _CHARTS.items():
        figure = make_figure(figsize=(5.4, 3.2), dpi=200, layout="constrained")
        axes = figure.subplots()
        for number, (run, history) in enumerate(runs.items()):
            for split, colour in _CURVES.items():
                epochs, values = _column(history[split], "epoch"), _column(history[split], key)
                if not np.isfinite(values).any():
                    continue
                style: dict[str, Any] = {"color": colour, "label": split, "lw": 1.4}
                if len(runs) > 1:  # A colour is a run, and what it trained on is thin.
                    name = {"label": run} if split == "validation" or key in _TRAINED else {}
                    thin = {"lw": 0.7, "alpha": 0.6} if split == "train" and not name else {}
                    style = {"color": f"C{number}", "lw": 1.4, "label": None, **name, **thin}
                marker = "o" if split == "validation" and len(values) <= _MAX_MARKERS else None
                axes.plot(epochs, values, marker=marker, ms=3, **style)
        if axes.lines:
            axes.legend(frameon=False, labelcolor=_INK)
        axes.set_title(title, loc="left", fontsize=11, fontweight="semibold")
        axes.set_xlabel("epoch", color=_INK)
        axes.spines[:].set_visible(False)
        axes.grid(axis="y", color=_LINE)
        axes.tick_params(length=0, labelcolor=_INK)
        axes.set_ylim(bottom=0 if key in _TRAINED else None)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        pictures[title] = buffer.getvalue()
    return pictures


def render_comparison(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Renders a self-contained page with several runs side by side.

    Args:
      results: the content of `result.json` by the name of its output folder.

    Returns:
      The page's text, to be written as UTF-8.
    """
    template, different = _environment().get_template("compare.html.j2"), {}
    configurations = [result["configuration"] for result in results.values()]
    for name in {name: None for configuration in configurations for name in configuration}:
        values = [configuration.get(name) for configuration in configurations]
        if name not in _OF_EACH_RUN and any(value != values[0] for value in values):
            different[name] = values
    curves = draw_curves({name: result["history"] for name, result in results.items()})
    return str(template.render(results=results, curves=curves, different=different))


def _heat_map(matrix: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Returns a picture of a confusion matrix, uint8 [classes, classes, 3], a pixel for each pair.

    The colour is the root of a share of the row, which makes rare mistakes visible.
    """
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    white, blue = np.full(3, 255), np.array([37, 99, 235])
    return (white + np.sqrt(shares)[..., None] * (blue - white)).astype(np.uint8)


def _frequent_mistakes(matrix: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Returns the most frequent pairs of a true class and another one that is predicted."""
    mistakes = matrix - np.diag(matrix.diagonal())
    pairs = np.argsort(-mistakes, axis=None, kind="stable")[:_FREQUENT]
    rows, columns = (part.tolist() for part in np.unravel_index(pairs, matrix.shape))
    return [pair for pair in zip(rows, columns) if mistakes[pair]]


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """Returns a column of rows, float64 [n]; values missing or not finite become NaN."""
    values = np.array([row.get(name, math.nan) for row in rows], dtype=np.float64)
    return np.where(np.isfinite(values), values, math.nan)
