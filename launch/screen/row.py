"""A task's row in the table, and the items that the display's thread writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Row:
    """The texts of one task's row in the table."""

    task: str
    host: str
    state: str
    step: str
    images_per_sec: str
    last: str


# A line; the rows of all tasks, for the table; or None, which ends the thread.
Item = Union[str, Sequence[Row], None]
