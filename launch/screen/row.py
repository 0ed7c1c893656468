"""What a screen says of a job, as text: the rows of its tasks, its progress, safe lines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Optional

LEADS = ("master/", "chief/")
_SPACES = "\t\u00a0\u3000"


def plain(line: str) -> str:
    """Returns a line without characters that control the terminal; tabs and spaces stay.

    In escape codes, controls clear the screen or write to the clipboard; others change the order in
    which a terminal shows the text. What follows an escape character stays as text.
    """
    if line.isprintable():
        return line
    return "".join(one for one in line if one.isprintable() or one in _SPACES)


def plain_lines(text: str) -> str:
    """Returns a text of several lines, each of them as `plain` returns it."""
    return "\n".join(map(plain, text.split("\n")))


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


def saved_rows(saved: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Returns the rows of a status file; cells that it lacks are empty, others are left out."""
    names = [field.name for field in fields(Row)]
    return [Row(*(str(row.get(name, "")) for name in names)) for row in saved]


def those_that_differ(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows to show beside the job's line: all before the first step of the lead.

    Later, those of tasks that do not just run, such as a lost one, or that are far behind the lead.
    """
    lead = next((row for row in rows if row.is_lead and row.step), None)
    if lead is None:
        return list(rows)
    reached, total = _step_and_total(lead)
    least = reached - max(reached, total) / 10

    def is_slow(row: Row) -> bool:
        return bool(row.step) and _step_and_total(row)[0] < least

    return [row for row in rows if row.state not in ("running", "done") or is_slow(row)]


def _step_and_total(row: Row) -> tuple[int, int]:
    found = _STEP.search(f"step {row.step}")
    return (_whole(found[1]), _whole(found[2] or "")) if found else (0, 0)


def job_line(rows: Sequence[Row], secs: float) -> str:
    """Returns the lead's last report of its progress, or another trainer's, and the elapsed time.

    Args:
      rows: the rows of all tasks.
      secs: the seconds since the job's start.
    """
    trained = sorted((row for row in rows if row.step), key=lambda row: not row.is_lead)
    words = "starting"
    if trained:
        first = trained[0]
        rate = f"  {first.images_per_sec} images/s" if first.images_per_sec else ""
        words = first.last if read_progress(first.last) else f"step {first.step}{rate}"
    return f"{words}   {duration(secs)} elapsed"


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
    """The progress that one line of a task's output reports, whichever program writes it.

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
