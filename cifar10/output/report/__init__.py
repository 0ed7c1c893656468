"""Renders `report.html`: a self-contained page that shows how training went.

The page contains its style, curves and pictures, and makes no requests. What draws them loads
matplotlib, which takes half as long as loading TensorFlow. So it is loaded by the first call, or by
`load`. The confusion matrix is a table of the page; its picture is for TensorBoard.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cifar10.output.report.mistakes import Mistake, png_of

__all__ = ["Mistake", "confusion_matrix_png", "load", "png_of", "render_report"]


def load() -> None:
    """Loads all modules of the report."""
    from cifar10.output.report import page  # noqa: F401


def render_report(result: Mapping[str, Any], mistakes: Sequence[Mistake]) -> str:
    """Renders the report; see `cifar10.output.report.page.render_report`."""
    from cifar10.output.report import page

    return page.render_report(result, mistakes)


def confusion_matrix_png(matrix: npt.NDArray[np.int64], class_names: Sequence[str]) -> bytes:
    """Draws a heat map; see `cifar10.output.report.pictures.confusion_matrix_png`."""
    from cifar10.output.report import pictures

    return pictures.confusion_matrix_png(matrix, class_names)
