"""Draws learning curves: a row of panels for each case, committed curves grey, new ones blue."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from matplotlib.figure import Figure

from benchmarks.convergence.curve import Curve, seeds_text

_COMMITTED, _NEW = "0.45", "tab:blue"


def save(pairs: Sequence[tuple[Optional[Curve], Optional[Curve]]], path: Path) -> None:
    """Draws each case's committed and new curve.

    Args:
      pairs: (committed, new) curves of each case; one of them may be None.
      path: path of the PNG or SVG file to write.
    """
    figure = Figure(figsize=(9.0, 2.8 * len(pairs)), layout="constrained")
    for panels, (committed, new) in zip(figure.subplots(len(pairs), 2, squeeze=False), pairs):
        for curve, colour, label in ((committed, _COMMITTED, "committed"), (new, _NEW, "new")):
            if curve is not None:
                _draw(panels, curve, colour, label)
                panels[0].set_title(curve.title, fontsize=10, loc="left")
        panels[0].set_ylabel("training loss")
        panels[1].set_ylabel("accuracy")
        panels[1].legend(fontsize=8, frameon=False)
        for axes in panels:
            axes.set_xlabel("step", fontsize=8)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(linewidth=0.4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw(panels: Sequence[Any], curve: Curve, colour: str, label: str) -> None:
    """Draws a line for each seed, and validation accuracy as a dot at the end."""
    for index, one in enumerate(curve.seeds.values()):
        text = f"{label}, {seeds_text(curve.seeds)}" if not index else None
        style = {"color": colour, "linewidth": 0.9, "alpha": 0.8}
        panels[0].plot(curve.steps, one.loss, **style)
        panels[1].plot(curve.steps, one.accuracy, label=text, **style)
        dot = f"{label}, validation" if not index else None
        panels[1].plot(curve.steps[-1], one.validation_accuracy, "o", color=colour, ms=4, label=dot)
