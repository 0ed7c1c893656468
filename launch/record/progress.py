"""Reads a task's progress from its output, whichever program writes it."""

import re
from dataclasses import dataclass
from typing import Optional

_STEP = re.compile(r"\bstep\s+([\d,]+)\s*(?:/\s*([\d,]+))?", re.IGNORECASE)
_RATE = re.compile(r"([\d,]+(?:\.\d+)?)\s*(?:images|img)/s", re.IGNORECASE)


@dataclass(frozen=True)
class Progress:
    """How far a task is, by its last progress line.

    Attributes:
      step: the global step.
      total: the last step; None if the line does not name it.
      images_per_sec: the text of the line; empty if it names no rate.
    """

    step: int
    total: Optional[int]
    images_per_sec: str


def read_progress(line: str) -> Optional[Progress]:
    """Returns the progress in a line; None if it is not a progress line.

    A step alone may stand in any message ("training to step 282"), so a progress line must have a
    total or a rate, too.
    """
    step, rate = _STEP.search(line), _RATE.search(line)
    if not step or not (step[2] or rate):
        return None
    total = int(step[2].replace(",", "")) if step[2] else None
    return Progress(int(step[1].replace(",", "") or 0), total, rate[1] if rate else "")
