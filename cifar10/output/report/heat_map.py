"""Draws the confusion matrix as a heat map, with matplotlib."""

import io
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure

from cifar10.output.report.confusion import shares
from cifar10.output.report.themes import LIGHT


def confusion_matrix_png(matrix: npt.NDArray[np.int64], class_names: Sequence[str]) -> bytes:
    """Draws the matrix as a heat map with counts.

    Args:
      matrix: counts, [n, n]; rows are true classes, columns predicted ones.
      class_names: n names.

    Returns:
      A PNG, 1080 by 1000 pixels.
    """
    matrix = np.asarray(matrix)
    figure = Figure(figsize=(5.4, 5.0), facecolor=LIGHT.surface)
    axes = figure.add_axes((0.17, 0.03, 0.81, 0.81), facecolor=LIGHT.surface)
    scale = LinearSegmentedColormap.from_list("counts", [LIGHT.surface, LIGHT.train])
    row_shares = shares(matrix)
    # Mistakes are a few per cent of a row; the square root makes them visible.
    axes.imshow(row_shares, cmap=scale, norm=PowerNorm(0.5, vmin=0, vmax=1), aspect="auto")
    for (label, predicted), images in np.ndenumerate(matrix):
        strong = row_shares[label, predicted] > 0.25
        axes.text(
            predicted,
            label,
            f"{images:,}" if images else "·",
            ha="center",
            va="center",
            fontsize=8,
            color=LIGHT.surface if strong else LIGHT.ink,
        )
    _dress(figure, class_names)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
    return buffer.getvalue()


def _dress(figure: Figure, class_names: Sequence[str]) -> None:
    (axes,) = figure.axes
    places = range(len(class_names))
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(
        places, class_names, rotation=40, ha="left", rotation_mode="anchor", parse_math=False
    )
    axes.set_yticks(places, class_names, parse_math=False)
    axes.tick_params(length=0, labelsize=8, labelcolor=LIGHT.ink)
    axes.set_xlabel("predicted", fontsize=8, color=LIGHT.ink, labelpad=4)
    axes.set_ylabel("true", fontsize=8, color=LIGHT.ink, labelpad=4)
    for spine in axes.spines.values():
        spine.set_visible(False)
