"""A task's row in the table, and the line of the whole job, made from the rows of all tasks."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Optional

LEADS = ("master/", "chief/")
_STEP = re.compile(r"\bstep\s{1,20}[0-9,]{1,20}\s{0,20}/\s{0,20}[0-9,]{1,20}", re.I)
_RATE = re.compile(r"(?<![0-9,.])[0-9,.]{1,30}\s{0,20}(?:images|img)/s(?:\s\([^()]{1,40}\))?", re.I)
_LEFT = re.compile(r"(?<!\S)([0-9dhms]{2,12}) left$")
_GAP = "   "


@dataclass(frozen=True)
class Row:
    """The texts of one task's row in the table."""

    task: str
    host: str
    state: str
    step: str
    images_per_sec: str
    last: str

    @property
    def is_lead(self) -> bool:
        """Whether it is the row of the task that leads the job."""
        return self.task.startswith(LEADS)

    @property
    def kind(self) -> str:
        """The state without its remark: `running` of `running (1 restarts)`."""
        return self.state.partition(" ")[0]

    @property
    def progress(self) -> tuple[int, int]:
        """The step and the last step in numbers; 0 for what is not known."""
        numbers = [int(re.sub("[^0-9]", "", part) or 0) for part in self.step.split("/")]
        return numbers[0], numbers[-1]

    @property
    def own_words(self) -> str:
        """Its last line without what the table or the line of the job says."""
        if not self.step or not is_progress(self.last):
            return self.last
        rest = self.last.rstrip()
        for pattern in (_STEP, _LEFT, _RATE):
            rest = pattern.sub("", rest).strip()
        return re.sub(r"\s{3,}", "  ", rest)


def saved_rows(saved: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Returns the rows of a status file; cells that it lacks are empty, others are left out."""
    names = [field.name for field in fields(Row)]
    return [Row(*(str(row.get(name, "")) for name in names)) for row in saved]


def duration(secs: float) -> str:
    """Formats a time span in its two largest units: `42s`, `4m12s`, `1h03m`, `2d04h`."""
    minutes, seconds = divmod(max(int(secs), 0), 60)
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
      width: the columns that the line may fill, with the lead's other figures, such as the loss,
        as far as there is room; None for a line without them.
    """
    trained = [row for row in rows if row.step]
    leads = [row for row in trained if row.is_lead]
    lead = next(iter(leads or trained), None)
    figures: list[str] = []
    rest = [] if secs is None else [f"{duration(secs)} elapsed"]
    if lead is None:
        return _GAP.join(["starting", *rest] if rest else [])
    if width is not None and is_progress(lead.last):
        figures = [text for text in lead.own_words.split("  ") if not text.startswith("epoch")]
    left = _LEFT.search(lead.last)
    rest = [f"{left[1]} left", *rest] if left else rest
    rest = [f"{lead.images_per_sec} images/s", *rest] if lead.images_per_sec else rest
    while width is not None and len(_GAP.join([f"step {lead.step}", *figures, *rest])) > width:
        if not figures and not rest:
            break
        (figures or rest).pop()  # whole figures, so that none is cut
    return _GAP.join([f"step {lead.step}", *figures, *rest])


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


def is_progress(line: str) -> bool:
    """Returns whether a task's line reports its step, as the line of the job does."""
    return bool(_STEP.search(line))


def count_states(rows: Sequence[Row]) -> str:
    """Returns how many tasks are in each state: `1 starting, 3 running`."""
    counts = Counter(row.kind for row in rows)
    return ", ".join(f"{count} {state}" for state, count in counts.items())
