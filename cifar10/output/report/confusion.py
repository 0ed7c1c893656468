"""The confusion matrix: shares of its rows, the classes' accuracies, the most frequent mistakes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np
import numpy.typing as npt

_MAX_PAIRS = 6


@dataclass(frozen=True)
class Confusion:
    """A kind of mistake: `count` images of class `label` were classified as `predicted`."""

    label: str
    predicted: str
    count: int


def shares(matrix: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Divides each row by its sum: float64 [n, n], zeros where a class has no image."""
    totals = matrix.sum(axis=1, keepdims=True)
    return np.asarray(matrix / np.maximum(totals, 1), dtype=np.float64)


def heat(images: int, row: Sequence[int]) -> int:
    """Returns how strongly a cell of the matrix is coloured, 0 to 100, by its share of its row.

    Mistakes are a few per cent of a row; the square root makes them visible.
    """
    return round(100 * math.sqrt(images / max(sum(row), 1)))


def class_accuracies(matrix: npt.NDArray[np.int64]) -> list[Optional[float]]:
    """Returns the share of each class that was recognised; None for a class without images."""
    totals = matrix.sum(axis=1)
    return [
        float(matrix[label, label] / total) if total else None for label, total in enumerate(totals)
    ]


def most_confused(matrix: npt.NDArray[np.int64], class_names: Sequence[str]) -> list[Confusion]:
    """Lists the most frequent mistakes, at most six, the most frequent first."""
    found = [
        Confusion(class_names[label], class_names[predicted], int(matrix[label, predicted]))
        for label, predicted in np.argwhere(matrix > 0)
        if label != predicted
    ]
    return sorted(found, key=lambda one: -one.count)[:_MAX_PAIRS]
