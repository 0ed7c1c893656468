"""The line about the whole job, and what a task's row says beside it, made from the tasks' rows."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Optional

from launch.screen.row import Row

_STEP = re.compile(r"\bstep\s{1,20}[0-9,]{1,20}\s{0,20}/\s{0,20}[0-9,]{1,20}", re.I)
_RATE = re.compile(r"(?<![0-9,.])[0-9,.]{1,30}\s{0,20}(?:images|img)/s(?:\s\([^()]{1,40}\))?", re.I)
_GAP = "   "
_LEFT = re.compile(r"(?<!\S)([0-9dhms]{2,12}) left$")


def duration(secs: float) -> str:
    """Formats a time span in its two largest units: `42s`, `4m12s`, `1h03m`, `2d04h`."""
    minutes, seconds = divmod(int(secs), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"


def job_line(rows: Sequence[Row], secs: Optional[float] = None, width: Optional[int] = None) -> str:
    """Returns the job's step, its images/s, the time that is left, and the elapsed time.

    Each trainer reports the images/s of the whole job, so the lead's stand for all.

    Args:
      rows: the rows of all tasks.
      secs: the seconds since the job's start; None if they are not known.
      width: the columns that the lead's other figures, such as the loss, may fill together with
        these; None to leave them out.
    """
    trained = [row for row in rows if row.step]
    leads = [row for row in trained if row.is_lead]
    step: list[str] = []
    figures: list[str] = []
    rest: list[str] = []
    for row in (leads or trained)[:1]:
        step.append(f"step {row.step}")
        if width is not None and _STEP.search(row.last):
            figures = [text for text in own_words(row).split("  ") if not text.startswith("epoch")]
        if row.images_per_sec:
            rest.append(f"{row.images_per_sec} images/s")
        left = _LEFT.search(row.last)
        if left:
            rest.append(f"{left[1]} left")
    if not step and secs is not None:
        step.append("starting")
    if secs is not None:
        rest.append(f"{duration(secs)} elapsed")
    words = [*step, *figures, *rest]
    while figures and width is not None and len(_GAP.join(words)) > width:
        figures.pop()
        words = [*step, *figures, *rest]
    return _GAP.join(words)


def those_that_differ(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows to show beside the job's line: all before the first step of the lead.

    Later, those of tasks that do not just run, such as a lost one, or that are far behind the lead.
    """
    reached = next((row.progress for row in rows if row.is_lead and row.step), None)
    if reached is None:
        return list(rows)

    def is_slow(row: Row) -> bool:
        step, total = row.progress
        return bool(row.step) and step < reached[0] - total / 10

    return [row for row in rows if row.state not in ("running", "done") or is_slow(row)]


def own_words(row: Row) -> str:
    """Returns a task's last line without what the table or the line of the job says."""
    if not row.step or not _STEP.search(row.last):
        return row.last
    rest = row.last.rstrip()
    for pattern in (_STEP, _LEFT, _RATE):
        rest = pattern.sub("", rest).strip()
    return re.sub(r"\s{3,}", "  ", rest)


def is_progress(line: str) -> bool:
    """Returns whether a task's line reports its step, as the line of the job does."""
    return bool(_STEP.search(line))


def count_states(rows: Sequence[Row]) -> str:
    """Returns how many tasks are in each state: `1 starting, 3 running`."""
    counts = Counter(row.state.partition(" ")[0] for row in rows)
    return ", ".join(f"{count} {state}" for state, count in counts.items())
