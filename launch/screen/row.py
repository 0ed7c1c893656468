"""A task's row in the table, and the items that the display's thread writes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Union

LEADS = ("master/", "chief/")


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
    def progress(self) -> tuple[int, int]:
        """The step and the last step in numbers; 0 for what is not known."""
        numbers = [int(re.sub("[^0-9]", "", part) or 0) for part in self.step.split("/")]
        return numbers[0], numbers[-1]


def saved_rows(saved: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Returns the rows of a status file; cells that it lacks are empty, others are left out."""
    names = [field.name for field in fields(Row)]
    return [Row(*(str(row.get(name, "")) for name in names)) for row in saved]


# A line; the rows of all tasks, for the table; or None, which ends the thread.
Item = Union[str, Sequence[Row], None]
