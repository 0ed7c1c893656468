"""What is shown of one task, and what the display's thread is given to write."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Row:
    """One task in the table."""

    task: str
    host: str
    state: str
    step: str
    images_per_sec: str
    last: str


# A line, the state of every task, or None: the end.
Item = Union[str, Sequence[Row], None]
