"""Reads a task's progress off its output; knows the words, not who writes them."""

import re
from dataclasses import dataclass
from typing import Optional

_STEP = re.compile(r"\bstep\s+([\d,]+)\s*(?:/\s*([\d,]+))?", re.IGNORECASE)
_RATE = re.compile(r"([\d,]+(?:\.\d+)?)\s*(?:images|img)/s", re.IGNORECASE)


@dataclass(frozen=True)
class Progress:
    """Where a task stands, as it last said.

    Attributes:
      step: the global step.
      total: the last one.
      images_per_sec: as it writes it.
    """

    step: int
    total: Optional[int]
    images_per_sec: str


def read_progress(line: str) -> Optional[Progress]:
    """The progress that a line tells of; None if it is about something else.

    A step alone may stand in any message ("training to step 282"): there must be a total or a
    rate beside it.
    """
    step, rate = _STEP.search(line), _RATE.search(line)
    if not step or not (step[2] or rate):
        return None
    total = int(step[2].replace(",", "")) if step[2] else None
    return Progress(int(step[1].replace(",", "") or 0), total, rate[1] if rate else "")
