"""What a screen says of a job, as text: the rows of its tasks, its progress, safe lines."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Optional

from cifar10_program.streams import format_duration

CHIEFS = ("master/", "chief/")
_SPACES = "\t\u00a0\u3000"
_BAR_WIDTH = 10
# What the line of a job shows first, as that of a process alone does.
_FIGURES = ("epoch", "loss", "accuracy", "left", "/s", "step")


def plain(line: str) -> str:
    """Returns a line without characters that control the terminal; tabs and spaces stay.

    In escape codes, controls clear the screen or write to the clipboard; others change the order in
    which a terminal shows the text. What follows an escape character stays as text.
    """
    if line.isprintable():
        return line
    return "".join(
        character for character in line if character.isprintable() or character in _SPACES
    )


def plain_lines(text: str) -> str:
    """Returns a text of several lines, each of them as `plain` returns it."""
    return "\n".join(map(plain, text.split("\n")))


@dataclass(frozen=True)
class Row:
    """The texts of one task's row in the table; `step` is empty, `5` or `5/60`.

    `progress`, which the table does not show, is the last line that reported a step.
    """

    task: str
    host: str
    state: str
    step: str
    last: str
    progress: str = ""

    @property
    def is_chief(self) -> bool:
        """Whether it is the row of the task that saves."""
        return self.task.startswith(CHIEFS)


def saved_rows(status: Mapping[str, Any]) -> list[Row]:
    """Returns the rows of a status file; cells that it lacks are empty, others are left out."""
    names = [field.name for field in fields(Row)]
    rows = status.get("tasks", [])
    return [Row(*(str(row.get(name, "")) for name in names)) for row in rows]


def those_that_differ(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows to show beside the job's line: all before the first step of the chief.

    Later, those of tasks that do not just run, such as a lost one, or are far behind the chief.
    """
    chiefs = [_reached_and_total(row.step) for row in rows if row.is_chief and row.step]
    least = max((reached - max(reached, total) / 10 for reached, total in chiefs), default=math.inf)

    def is_slow(row: Row) -> bool:
        return bool(row.step) and _reached_and_total(row.step)[0] < least

    return [
        row for row in rows if not chiefs or row.state not in ("running", "done") or is_slow(row)
    ]


def _reached_and_total(step: str) -> tuple[int, int]:
    reached, _, total = step.partition("/")
    return _whole(reached), _whole(total)


def job_line(rows: Sequence[Row], secs: float, width: int, bar: str = "━─") -> str:
    """Returns the chief's progress, or another trainer's, and the elapsed time: all that fits.

    Args:
      rows: the rows of all tasks.
      secs: the seconds since the job's start.
      width: the most columns.
      bar: the characters of the bar, for what is done and for what is left.
    """
    elapsed = f"{format_duration(secs)} elapsed"
    row = max(rows, key=lambda row: (bool(row.step), row.is_chief), default=None)
    if row is None or not row.step:
        return f"starting  {elapsed}"
    reached, total = _reached_and_total(row.step)
    done = _BAR_WIDTH * reached // total if total else 0
    words = [bar[0] * done + bar[1] * (_BAR_WIDTH - done)] if total else []
    figures = [word for word in re.split(r"\s{2,}", row.progress) if word[:5] not in ("", "step ")]
    for figure in sorted([*figures, f"step {row.step}"], key=_place):
        if len("  ".join([*words, figure, elapsed])) <= width:
            words.append(figure)
    return "  ".join([*words, elapsed])


def _place(figure: str) -> int:
    return next((i for i, word in enumerate(_FIGURES) if word in figure), len(_FIGURES))


def percent(accuracy: Optional[float]) -> str:
    """Formats an accuracy within [0, 1]: `91.32 %`; None as ""."""
    return "" if accuracy is None else f"{100 * accuracy:.2f} %"


# Numbers and spaces are limited, since a search for longer ones takes a time that grows with the
# square of their length, and Python converts only 4,300 digits.
_NUMBER = r"(?<![0-9,])[0-9,]{1,20}"
_STEP = re.compile(
    rf"\bstep\s{{1,20}}({_NUMBER})(?![0-9,])\s{{0,20}}(?:/\s{{0,20}}({_NUMBER})(?![0-9,]))?", re.I
)
_SAVED = re.compile(r"saved:? {1,20}(\S.{0,4000})")
_RATE = re.compile(rf"{_NUMBER}(?:\.[0-9]{{1,20}})?\s{{0,20}}(?:images|img)/s", re.I)


def read_step(line: str) -> str:
    """Returns the step of a progress line, such as `5` or `1,205/2,820`; "" for another line.

    A step alone may stand in any message ("training to step 282"), so a progress line must also
    have a total or a rate, whichever program writes it.
    """
    step = _STEP.search(line)
    if not step or not (step[2] or _RATE.search(line)):
        return ""
    reached = _whole(step[1])
    # Of several asynchronous trainers, some may take a step after the last one.
    return f"{reached:,}/{max(_whole(step[2]), reached):,}" if step[2] else f"{reached:,}"


def read_saved(line: str) -> Optional[str]:
    """Returns the checkpoint that a task saved at its end (`saved output/model.ckpt-40`)."""
    found = _SAVED.fullmatch(line.strip())
    return found[1] if found else None


def _whole(text: str) -> int:
    """Returns the number that digits and commas give; 0 for commas alone."""
    return int(text.replace(",", "") or 0)
