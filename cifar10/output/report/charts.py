"""Draws curves as SVG that takes its colours and its font from the page, so that it can be dark."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from cifar10.output.report.numbers import as_float

_MAX_POINTS = 300  # about one for each pixel of a chart's width, and 10 kB of SVG
_MAX_MARKERS = 40

# Colours that the page's style replaces: matplotlib writes them, `_take_page_colours` maps them.
_INK, _GRID, _TRAIN, _VALIDATION = "#0a0a01", "#0a0a02", "#0a0a03", "#0a0a04"
_PAGE_COLOURS = {
    _INK: "var(--muted)",
    _GRID: "var(--line)",
    _TRAIN: "var(--train)",
    _VALIDATION: "var(--validation)",
}
_Floats = npt.NDArray[np.float64]

_COLOUR_OF = {"train": _TRAIN, "validation": _VALIDATION}


@dataclass(frozen=True)
class Series:
    """One curve: `values` over `epochs`, both float64 [n]; nan where there is no figure."""

    name: str
    epochs: _Floats
    values: _Floats

    @property
    def first(self) -> float:
        """The first finite value, nan if there is none."""
        finite = self.values[np.isfinite(self.values)]
        return float(finite[0]) if finite.size else math.nan

    @property
    def last(self) -> float:
        """The last finite value, nan if there is none."""
        finite = self.values[np.isfinite(self.values)]
        return float(finite[-1]) if finite.size else math.nan


@dataclass(frozen=True)
class Chart:
    """A drawn chart: `svg` is None if there was nothing to draw."""

    title: str
    svg: Optional[str]
    series: Sequence[Series]


def series_of(name: str, rows: Sequence[Mapping[str, Any]], key: str) -> Series:
    """Takes the column `key` out of a history; rows without an epoch are left out."""
    points = [
        (as_float(row["epoch"]), as_float(row.get(key)))
        for row in rows
        if row.get("epoch") is not None
    ]
    table = np.array(points, dtype=np.float64).reshape(-1, 2)
    values = np.where(np.isfinite(table[:, 1]), table[:, 1], math.nan)
    return Series(name, table[:, 0], values)


def draw_chart(
    title: str, series: Sequence[Series], *, share: bool = False, from_zero: bool = False
) -> Chart:
    """Draws curves against epochs.

    Args:
      title: what the curves show.
      series: named `train` or `validation`; those without a finite value are left out.
      share: the values are shares, written as per cents.
      from_zero: the vertical axis begins at zero.
    """
    shown = [curve for curve in series if np.isfinite(curve.values).any()]
    if not shown:
        return Chart(title, None, ())
    figure = Figure(figsize=(5.4, 2.8))
    axes = figure.add_axes((0.095, 0.13, 0.885, 0.84))
    for curve in shown:
        _draw_curve(axes, curve)
    _dress(axes, share=share)
    last_epoch = max(float(curve.epochs[-1]) for curve in shown)
    axes.set_xlim(0, last_epoch if last_epoch > 0 else 1)
    if from_zero:
        axes.set_ylim(bottom=0)
    return Chart(title, _svg(figure, title), shown)


def _draw_curve(axes: Axes, curve: Series) -> None:
    epochs, values = _thin(curve.epochs), _thin(curve.values)
    few = np.isfinite(values).sum() <= (1 if curve.name == "train" else _MAX_MARKERS)
    axes.plot(
        epochs,
        values,
        color=_COLOUR_OF[curve.name],
        linewidth=1.6,
        marker="o" if few else None,
        markersize=3.6,
        clip_on=False,
        solid_capstyle="round",
    )


def _thin(values: _Floats) -> _Floats:
    """Averages runs of neighbours until at most `_MAX_POINTS` are left; nan does not spread."""
    run = math.ceil(len(values) / _MAX_POINTS)
    if run <= 1:
        return values
    padded = np.full(math.ceil(len(values) / run) * run, math.nan)
    padded[: len(values)] = values
    runs = padded.reshape(-1, run)
    known = np.isfinite(runs)
    with np.errstate(invalid="ignore"):  # a run without a figure stays nan
        return np.asarray(np.where(known, runs, 0.0).sum(axis=1) / known.sum(axis=1))


def _dress(axes: Axes, *, share: bool) -> None:
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.tick_params(length=0, pad=6, labelsize=9, labelcolor=_INK)
    axes.set_xlabel("epoch", fontsize=9, color=_INK, labelpad=2)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if share:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _svg(figure: Figure, title: str) -> str:
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    # The salt makes the same chart the same text, and the ids of two charts on a page different.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]  # without the XML prologue, which names an outside document
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = _without_loose_ids(svg)
    for colour, page_colour in _PAGE_COLOURS.items():
        svg = svg.replace(colour, page_colour)
    # The figure around it says in words what the drawing shows.
    head = re.compile(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>')
    return head.sub(r'<svg viewBox="\1" aria-hidden="true" focusable="false">', svg, count=1)


def _without_loose_ids(svg: str) -> str:
    """Drops the ids that nothing refers to: matplotlib gives each chart the same ones."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    return re.sub(
        r' id="([^"]*)"', lambda match: match.group(0) if match.group(1) in used else "", svg
    )
