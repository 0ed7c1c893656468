"""Draws learning curves: a whole run, and batch sizes side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

_COLOURS = ("tab:blue", "tab:orange", "tab:green")
# Makes files reproducible to the last byte: no random names of clip paths.
_STYLE = {"svg.hashsalt": "curves", "svg.fonttype": "none", "font.size": 9}


def draw_whole(whole: Mapping[str, Any], tutorial: Mapping[str, Any], path: Path) -> None:
    """Draws the whole run, and its first epoch beside that of the tutorial's settings.

    Args:
      whole: curve of the whole run (`learning.curve_of`).
      tutorial: curve of about an epoch with the tutorial's settings.
      path: path of the SVG file to write.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.0, 3.4), layout="constrained")
        first_loss, first_accuracy, accuracy = figure.subplots(1, 3)
        first_loss.set_title("first epoch: training loss", loc="left", fontsize=10)
        first_accuracy.set_title("first epoch: training accuracy", loc="left", fontsize=10)
        accuracy.set_title("the whole run: accuracy", loc="left", fontsize=10)
        for curve, label, colour in (
            (whole, "defaults", _COLOURS[0]),
            (tutorial, "the tutorial's settings", "0.5"),
        ):
            rows = sum(epoch <= 1.05 for epoch in curve["epoch"])
            epochs = curve["epoch"][:rows]
            first_loss.plot(epochs, curve["loss"][:rows], color=colour, label=label)
            first_accuracy.plot(epochs, curve["accuracy"][:rows], color=colour, label=label)
        accuracy.plot(whole["epoch"], whole["accuracy"], color=_COLOURS[0], alpha=0.5, lw=0.8)
        accuracy.plot([], [], color=_COLOURS[0], alpha=0.5, label="training")
        accuracy.plot(
            whole["validation_epoch"],
            whole["validation_accuracy"],
            "o-",
            color=_COLOURS[1],
            markersize=3,
            label="validation",
        )
        accuracy.axhline(whole["eval_accuracy"], color="0.3", lw=0.8, ls=":")
        accuracy.plot([], [], color="0.3", lw=0.8, ls=":", label="eval images, best checkpoint")
        _finish(figure, (first_loss, first_accuracy, accuracy), path)


def draw_batches(curves: Mapping[int, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Draws a column of panels for each batch size, and a line for each way to train.

    Args:
      curves: batch size -> curves of the runs with that batch size (`learning.curve_of`).
      path: path of the SVG file to write.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10.0, 5.2), layout="constrained")
        panels = figure.subplots(2, len(curves), squeeze=False, sharey="row", sharex="col")
        for (size, found), loss, accuracy in zip(curves.items(), panels[0], panels[1]):
            loss.set_title(f"batches of {size:,}", loc="left", fontsize=10)
            for curve, colour in zip(found, _COLOURS):
                loss.plot(curve["epoch"], curve["loss"], color=colour, label=curve["way"])
                accuracy.plot(curve["epoch"], curve["accuracy"], color=colour, label=curve["way"])
                end = (curve["validation_epoch"][-1], curve["validation_accuracy"][-1])
                accuracy.plot(*end, "o", color=colour, markersize=5)
        panels[0][0].set_ylabel("training loss")
        panels[1][0].set_ylabel("training accuracy\n(dot: validation)")
        most = max(range(len(curves)), key=lambda column: len(list(curves.values())[column]))
        _finish(figure, panels.flat, path, legends=(panels[0][most],))


def _finish(figure: Figure, panels: Any, path: Path, legends: Sequence[Any] = ()) -> None:
    every = list(panels)
    for axes in every:
        axes.set_xlabel("epoch")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(linewidth=0.4)
    for axes in legends or every:
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None})
