"""Reads a task's progress from its output, whichever program writes it."""

import re
from dataclasses import dataclass
from typing import Optional

_STEP = re.compile(r"\bstep\s+([\d,]+)\s*(?:/\s*([\d,]+))?", re.IGNORECASE)
_RATE = re.compile(r"([\d,]+(?:\.\d+)?)\s*(?:images|img)/s", re.IGNORECASE)


@dataclass(frozen=True)
class Progress:
    """The progress that one line of a task's output reports.

    Attributes:
      step: the global step.
      total: the last step; None if the line does not name it.
      images_per_sec: the rate as the line writes it, such as `1,024.5`; empty if it has none.
    """

    step: int
    total: Optional[int]
    images_per_sec: str


def read_progress(line: str) -> Optional[Progress]:
    """Returns the progress in a line; None if it is not a progress line.

    A step alone may stand in any message ("training to step 282"), so a progress line must also
    have a total or a rate.
    """
    step, rate = _STEP.search(line), _RATE.search(line)
    if not step or not (step[2] or rate):
        return None
    total = int(step[2].replace(",", "")) if step[2] else None
    return Progress(int(step[1].replace(",", "") or 0), total, rate[1] if rate else "")
