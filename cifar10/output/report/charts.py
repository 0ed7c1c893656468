"""Draws curves as SVG."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from cifar10.output.report.themes import LIGHT

_MAX_POINTS = 300  # About one for each pixel of a chart's width, and 10 kB of SVG.
_MAX_MARKERS = 40

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """A named curve: `values` against `epochs`, both float64 [n]; NaN marks a missing value."""

    name: str
    epochs: _Floats
    values: _Floats

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last finite value; the curve must have one."""
        finite = self.values[np.isfinite(self.values)]
        return float(finite[0]), float(finite[-1])


def series_of(name: str, rows: Sequence[Mapping[str, Any]], key: str) -> Series:
    """Makes a curve of the column `key` of rows; values missing or not finite become NaN."""
    epochs = np.array([row["epoch"] for row in rows], dtype=np.float64)
    values = np.array([row.get(key, math.nan) for row in rows], dtype=np.float64)
    return Series(name, epochs, np.where(np.isfinite(values), values, math.nan))


def draw_chart(series: Sequence[Series], *, share: bool = False, from_zero: bool = False) -> bytes:
    """Draws curves against epochs, as an SVG file in the light theme's colours.

    Args:
      series: named `train` or `validation`; each has a finite value.
      share: the values are shares, written as per cents.
      from_zero: the vertical axis begins at zero.
    """
    figure = Figure(figsize=(5.4, 2.8), facecolor=LIGHT.surface)
    axes = figure.add_axes((0.095, 0.13, 0.885, 0.84), facecolor=LIGHT.surface)
    for curve in series:
        _draw_curve(axes, curve)
    _dress(axes, share=share)
    last_epoch = max(float(curve.epochs[-1]) for curve in series)
    axes.set_xlim(0, last_epoch if last_epoch > 0 else 1)
    if from_zero:
        axes.set_ylim(bottom=0)
    buffer = io.BytesIO()
    # Without a date and random ids, equal charts give equal files.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "chart"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _draw_curve(axes: Axes, curve: Series) -> None:
    epochs, values = _thin(curve.epochs), _thin(curve.values)
    few = np.isfinite(values).sum() <= (1 if curve.name == "train" else _MAX_MARKERS)
    axes.plot(
        epochs,
        values,
        color={"train": LIGHT.train, "validation": LIGHT.validation}[curve.name],
        linewidth=1.6,
        marker="o" if few else None,
        markersize=3.6,
        clip_on=False,
        solid_capstyle="round",
    )


def _thin(values: _Floats) -> _Floats:
    """Averages groups of adjacent values, ignoring NaN, so that at most `_MAX_POINTS` remain."""
    run = math.ceil(len(values) / _MAX_POINTS)
    if run <= 1:
        return values
    padded = np.full(math.ceil(len(values) / run) * run, math.nan)
    padded[: len(values)] = values
    runs = padded.reshape(-1, run)
    known = np.isfinite(runs)
    with np.errstate(invalid="ignore"):  # A group of NaN alone becomes NaN.
        return np.asarray(np.where(known, runs, 0.0).sum(axis=1) / known.sum(axis=1))


def _dress(axes: Axes, *, share: bool) -> None:
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT.line)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=LIGHT.line, linewidth=0.8)
    axes.tick_params(length=0, pad=6, labelsize=9, labelcolor=LIGHT.ink)
    axes.set_xlabel("epoch", fontsize=9, color=LIGHT.ink, labelpad=2)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if share:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
