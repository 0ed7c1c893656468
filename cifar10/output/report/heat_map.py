"""Draws the confusion matrix as a heat map, with matplotlib."""

import functools
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

from cifar10.output.report.confusion import shares
from cifar10.output.report.themes import LIGHT


class _Picture(NamedTuple):
    """A picture, and what differs from one matrix to the next: the cells' colours and counts."""

    figure: Figure
    cells: AxesImage
    counts: tuple[Text, ...]


def confusion_matrix_png(matrix: npt.NDArray[np.int64], class_names: Sequence[str]) -> bytes:
    """Draws the matrix as a heat map with counts; for one thread alone.

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
    picture = _picture(tuple(class_names))
    row_shares = shares(matrix)
    picture.cells.set_data(row_shares)
    for text, images, share in zip(picture.counts, matrix.flat, row_shares.flat):
        text.set_text(f"{images:,}" if images else "·")
        text.set_color(LIGHT.surface if share > 0.25 else LIGHT.ink)
    buffer = io.BytesIO()
    picture.figure.savefig(buffer, format="png", dpi="figure", metadata={"Software": None})
    return buffer.getvalue()


@functools.lru_cache(maxsize=1)  # Each validation draws one, and to make it anew takes longer.
def _picture(class_names: tuple[str, ...]) -> _Picture:
    figure = Figure(figsize=(5.4, 5.0), dpi=100, facecolor=LIGHT.surface)
    axes = figure.add_axes((0.17, 0.03, 0.81, 0.81), facecolor=LIGHT.surface)
    scale = LinearSegmentedColormap.from_list("counts", [LIGHT.surface, LIGHT.train])
    size = len(class_names)
    # Mistakes are a few per cent of a row; the square root makes them visible.
    norm = PowerNorm(0.5, vmin=0, vmax=1)
    cells = axes.imshow(np.zeros((size, size)), cmap=scale, norm=norm, aspect="auto")
    counts = tuple(
        axes.text(predicted, label, "", ha="center", va="center", fontsize=8)
        for label, predicted in np.ndindex(size, size)
    )
    _dress(figure, class_names)
    return _Picture(figure, cells, counts)


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
