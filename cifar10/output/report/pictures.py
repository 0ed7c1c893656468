"""Draws curves as SVG, for the page, and the confusion matrix as PNG, for TensorBoard."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

# The colours of report.css, which embedded pictures cannot read, and those of its dark theme.
_SURFACE, _INK, _LINE, _TRAIN, _VALIDATION = "#ffffff", "#5b6472", "#e4e7ec", "#2563eb", "#d9660b"
_DARK = {
    _SURFACE: "#171b21",
    _INK: "#9aa4b2",
    _LINE: "#2a313b",
    _TRAIN: "#7aa7ff",
    _VALIDATION: "#f5a35c",
}
_MAX_POINTS = 300  # About one for each pixel of a chart's width, and 10 kB of SVG.
_MAX_MARKERS = 40

Floats = npt.NDArray[np.float64]


def column(rows: Sequence[Mapping[str, Any]], name: str) -> Floats:
    """Returns a column of rows, float64 [n]; values missing or not finite become NaN."""
    values = np.array([row.get(name, math.nan) for row in rows], dtype=np.float64)
    return np.where(np.isfinite(values), values, math.nan)


def draw_chart(
    curves: Mapping[str, tuple[Floats, Floats]], *, share: bool = False, from_zero: bool = False
) -> tuple[bytes, bytes]:
    """Draws curves against epochs.

    Args:
      curves: `train`, `validation` or both -> epochs and values, both float64 [n], in the order of
        epochs; NaN marks a missing value, and one is finite.
      share: the values are shares, written as per cents.
      from_zero: the vertical axis begins at zero.

    Returns:
      Two SVG files, in the light theme's colours and in the dark theme's.
    """
    figure = Figure(figsize=(5.4, 2.8), facecolor=_SURFACE)
    axes = figure.add_axes((0.095, 0.13, 0.885, 0.84), facecolor=_SURFACE)
    for name, (epochs, values) in curves.items():
        step = math.ceil(len(values) / _MAX_POINTS)
        shown = slice(-1, None, -step)  # the last one, and every so many before it
        few = np.isfinite(values[shown]).sum() <= (1 if name == "train" else _MAX_MARKERS)
        axes.plot(
            epochs[shown],
            values[shown],
            color=_TRAIN if name == "train" else _VALIDATION,
            linewidth=1.6,
            marker="o" if few else None,
            markersize=3.6,
            clip_on=False,
            solid_capstyle="round",
        )
    _dress(axes, share)
    axes.set_xlim(0, max(epochs[-1] for epochs, _ in curves.values()) or 1)
    if from_zero:
        axes.set_ylim(bottom=0)
    buffer = io.BytesIO()
    # Without a date and random ids, equal charts give equal files.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "chart"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    light = buffer.getvalue().decode()
    dark = re.sub(r"#[0-9a-f]{6}\b", lambda found: _DARK.get(found[0], found[0]), light)
    return light.encode(), dark.encode()


def _dress(axes: Axes, share: bool) -> None:
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_LINE)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_LINE, linewidth=0.8)
    axes.tick_params(length=0, pad=6, labelsize=9, labelcolor=_INK)
    axes.set_xlabel("epoch", fontsize=9, color=_INK, labelpad=2)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, share)))


def _tick(value: float, share: bool) -> str:
    if share:
        return f"{100 * value:.4g}%"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def confusion_matrix_png(matrix: npt.NDArray[np.int64], class_names: Sequence[str]) -> bytes:
    """Draws the confusion matrix as a heat map with counts.

    Args:
      matrix: counts, [n, n]; rows are true classes, columns predicted ones.
      class_names: n names.

    Returns:
      A PNG, 540 by 500 pixels.

    Raises:
      ValueError: the matrix has another size.
    """
    matrix = np.asarray(matrix)
    if matrix.shape != (len(class_names), len(class_names)):
        raise ValueError(f"{list(matrix.shape)} counts for {len(class_names)} classes")
    figure = Figure(figsize=(5.4, 5.0), dpi=100, facecolor=_SURFACE)
    axes = figure.add_axes((0.17, 0.03, 0.81, 0.81), facecolor=_SURFACE)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    # Mistakes are a few per cent of a row; the square root makes them visible.
    norm = PowerNorm(0.5, vmin=0, vmax=1)
    scale = LinearSegmentedColormap.from_list("counts", [_SURFACE, _TRAIN])
    axes.imshow(shares, cmap=scale, norm=norm, aspect="auto")
    for (label, predicted), images in np.ndenumerate(matrix):
        colour = _SURFACE if shares[label, predicted] > 0.25 else _INK
        text = f"{images:,}" if images else "·"
        axes.text(predicted, label, text, ha="center", va="center", fontsize=8, color=colour)
    places = range(len(class_names))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(
        places, class_names, rotation=40, ha="left", rotation_mode="anchor", parse_math=False
    )
    axes.set_yticks(places, class_names, parse_math=False)
    axes.tick_params(length=0, labelsize=8, labelcolor=_INK)
    axes.set_xlabel("predicted", fontsize=8, color=_INK, labelpad=4)
    axes.set_ylabel("true", fontsize=8, color=_INK, labelpad=4)
    axes.spines[:].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi="figure", metadata={"Software": None})
    return buffer.getvalue()
