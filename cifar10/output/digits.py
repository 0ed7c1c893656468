"""Digits of the figures in JSON files: as many as people write.

A float32 of 0.1 is 0.10000000149011612 as a Python float, and a measured rate has more digits than
anybody measured. Six significant digits tell apart what can be told apart here: the accuracies of
10,000 images differ in the fourth digit.
"""

import math
from collections.abc import Mapping
from typing import Any

_SIGNIFICANT = 6
_SECONDS_DECIMALS = 3


def rounded(value: float) -> float:
    """Returns a number with six significant digits: 0.1 for a float32 of 0.1."""
    return float(f"{float(value):.{_SIGNIFICANT}g}")


def rounded_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds the floats of a row of figures; integers, texts and None stay as they are.

    Seconds are rounded to milliseconds, whatever their number: a run that continues goes on
    counting from them.

    Args:
      figures: numbers by name; names that end in `seconds` are times.
    """
    return {name: _rounded_figure(name, value) for name, value in figures.items()}


def _rounded_figure(name: str, value: Any) -> Any:
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return round(value, _SECONDS_DECIMALS) if name.endswith("seconds") else rounded(value)
