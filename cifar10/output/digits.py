"""Digits of the figures in JSON files: as many as people write.

A float32 of 0.1 is 0.10000000149011612 as a Python float, and a measured rate has more digits than
anybody measured. Six significant digits tell apart what can be told apart here: the accuracies of
10,000 images differ in the fourth digit.
"""

import math
from collections.abc import Mapping
from typing import Any


def rounded(value: float) -> float:
    """Returns a number with six significant digits: 0.1 for a float32 of 0.1."""
    return float(f"{float(value):.6g}")


def rounded_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds the finite floats of a row of figures; all other values stay as they are."""
    return {
        name: rounded(value) if isinstance(value, float) and math.isfinite(value) else value
        for name, value in figures.items()
    }
