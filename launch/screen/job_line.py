"""The line about the whole job, and what a task's row says beside it, made from the tasks' rows."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Optional

from launch.screen.row import Row

_STEP = re.compile(r"\bstep\s{1,20}[0-9,]{1,20}\s{0,20}/\s{0,20}[0-9,]{1,20}", re.I)
_RATE = re.compile(r"(?<![0-9,.])[0-9,.]{1,30}\s{0,20}(?:images|img)/s(?:\s\([^()]{1,40}\))?", re.I)
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


def job_line(rows: Sequence[Row], secs: Optional[float] = None) -> str:
    """Returns the job's step, its images/s, the time that is left, and the elapsed time.

    Each trainer reports the images/s of the whole job, so the lead's stand for all.

    Args:
      rows: the rows of all tasks.
      secs: the seconds since the job's start; None if they are not known.
    """
    trained = [row for row in rows if row.step]
    leads = [row for row in trained if row.is_lead]
    words = []
    for row in (leads or trained)[:1]:
        words.append(f"step {row.step}")
        if row.images_per_sec:
            words.append(f"{row.images_per_sec} images/s")
        left = _LEFT.search(row.last)
        if left:
            words.append(f"{left[1]} left")
    if not words and secs is not None:
        words.append("starting")
    if secs is not None:
        words.append(f"{duration(secs)} elapsed")
    return "   ".join(words)


def own_words(row: Row) -> str:
    """Returns a task's last line without what the table or the line of the job says."""
    return _without(row.last, _STEP, _LEFT, _RATE) if row.step else row.last


def without_speed(line: str) -> str:
    """Returns a progress line without images/s and the time left, which the job's line has."""
    return _without(line, _LEFT, _RATE)


def _without(line: str, *patterns: "re.Pattern[str]") -> str:
    """Removes what matches from a progress line; other lines stay as they are."""
    if not _STEP.search(line):
        return line
    rest = line.rstrip()
    for pattern in patterns:
        rest = pattern.sub("", rest).strip()
    return re.sub(r"\s{3,}", "  ", rest)


def count_states(rows: Sequence[Row]) -> str:
    """Returns how many tasks are in each state: `1 starting, 3 running`."""
    counts = Counter(row.state.partition(" ")[0] for row in rows)
    return ", ".join(f"{count} {state}" for state, count in counts.items())
