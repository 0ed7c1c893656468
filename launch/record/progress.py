"""Reads a task's progress from its output, whichever program writes it."""

import re
from dataclasses import dataclass
from typing import Optional

# Numbers and spaces are limited, since a search for longer ones takes a time that grows with the
# square of their length, and Python converts only 4,300 digits.
_NUMBER = r"(?<![0-9,])[0-9,]{1,20}"
_STEP = re.compile(
    rf"\bstep\s{{1,20}}({_NUMBER})(?![0-9,])\s{{0,20}}(?:/\s{{0,20}}({_NUMBER})(?![0-9,]))?", re.I
)
_SAVED = re.compile(r"saved:? {1,20}(\S.{0,4000})")
_RATE = re.compile(rf"({_NUMBER}(?:\.[0-9]{{1,20}})?)\s{{0,20}}(?:images|img)/s", re.I)


@dataclass(frozen=True)
class Progress:
    """The progress that one line of a task's output reports.

    Attributes:
      step: the global step.
      total: the last step, at least `step`; None if the line does not name it.
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
    reached = _whole(step[1])
    # Of several asynchronous trainers, some may take a step after the last one.
    total = max(_whole(step[2]), reached) if step[2] else None
    return Progress(reached, total, rate[1] if rate else "")


def read_saved(line: str) -> Optional[str]:
    """Returns the checkpoint that a task saved at its end (`saved output/model.ckpt-40`)."""
    found = _SAVED.fullmatch(line.strip())
    return found[1] if found else None


def _whole(text: str) -> int:
    """Returns the number that digits and commas give; 0 for commas alone."""
    return int(text.replace(",", "") or 0)
