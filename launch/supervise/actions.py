"""What the supervisor decides to do next."""

from dataclasses import dataclass
from typing import Union


@dataclass(frozen=True)
class Start:
    """The action that starts a task."""

    task: str


@dataclass(frozen=True)
class Signal:
    """The action that sends a signal to a task."""

    task: str
    signum: int


@dataclass(frozen=True)
class Note:
    """The action that shows a line of text to the user."""

    text: str


Action = Union[Start, Signal, Note]
