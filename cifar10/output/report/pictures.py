"""Draws the pictures of the report and of TensorBoard with matplotlib."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure

_INK, _LINE = "#5b6472", "#e4e7ec"
_CURVES = {"train": "#2563eb", "validation": "#d9660b"}
_CHARTS = {
    "Loss": "loss",
    "Accuracy": "accuracy",
    "Learning rate": "learning_rate",
    "Images per second": "images_per_sec",
}
_MAX_MARKERS = 40


def curves_png(history: Mapping[str, Sequence[Mapping[str, Any]]]) -> bytes:
    """Draws loss, accuracy, learning rate and speed against epochs.

    Args:
      history: the rows of `train` and of `validation`; what is missing or not finite is a gap.

    Returns:
      A PNG, 2160 by 1280 pixels.
    """
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
    return _png(figure)


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """Returns a column of rows, float64 [n]; values missing or not finite become NaN."""
    values = np.array([row.get(name, math.nan) for row in rows], dtype=np.float64)
    return np.where(np.isfinite(values), values, math.nan)


def confusion_matrix_png(matrix: npt.NDArray[np.int64], class_names: Sequence[str]) -> bytes:
    """Draws the confusion matrix as a heat map with counts, and each class's accuracy.

    Args:
      matrix: counts, [n, n]; rows are true classes, columns predicted ones.
      class_names: n names.

    Returns:
      A PNG, 780 by 650 pixels for ten classes.
    """
    totals = np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = max(4.0, len(class_names) / 2)
    figure = Figure(figsize=(1.2 * side, side), dpi=130)
    axes = figure.add_axes((0.2, 0.16, 0.78, 0.82))
    # Mistakes are a few per cent of a row; the square root makes them visible.
    scale = LinearSegmentedColormap.from_list("counts", ["#ffffff", _CURVES["train"]])
    axes.imshow(matrix / totals, cmap=scale, norm=PowerNorm(0.5, vmin=0, vmax=1), aspect="auto")
    for (label, predicted), images in np.ndenumerate(matrix):
        colour = "#ffffff" if images > totals[label] / 4 else _INK
        text = f"{images:,}" if images else "·"
        axes.text(predicted, label, text, ha="center", va="center", fontsize=8, color=colour)
    places, shares = range(len(class_names)), matrix.diagonal() / totals[:, 0]
    rows = [f"{name}  {100 * share:.1f} %" for name, share in zip(class_names, shares)]
    axes.set_xticks(places, class_names, rotation=40, ha="right", parse_math=False)
    axes.set_yticks(places, rows, parse_math=False)
    axes.tick_params(length=0, labelsize=8, labelcolor=_INK)
    axes.set_xlabel("predicted", fontsize=8, color=_INK)
    axes.spines[:].set_visible(False)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
