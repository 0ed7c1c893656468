"""A row of the table: a setting, where its effect is seen, and what is seen there."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name


@dataclasses.dataclass(frozen=True)
class Row:
    """What a setting changes.

    Attributes:
      setting: its name in TrainConfig.
      probe: looks at what the program makes of a configuration.
      seen: what the probe must find, by the setting's value on the command line; None: it is left
        out. No two may be equal, so that a row fails where its setting is ignored.
      given: words that stand on the command line with each of the values.
      fixture: of pytest, that the row needs.
    """

    setting: str
    probe: Callable[[TrainConfig], Any]
    seen: Mapping[Optional[str], Any]
    given: str = ""
    fixture: Optional[str] = None

    def arguments(self, value: Optional[str]) -> list[str]:
        """The command line with that value."""
        return [*self.given.split(), *argument(self.setting, value)]

    def __str__(self) -> str:
        # Not what is given: a free port differs between the processes that collect the tests.
        return f"{self.setting}-{self.probe.__name__}"


def argument(setting: str, value: Optional[str]) -> list[str]:
    """The words that give a setting a value; none where it is left out."""
    return [] if value is None else [f"{flag_name(setting)}={value}"]


def with_more(rows: Sequence[Row], words: str) -> list[Row]:
    """The same rows with more words on each command line."""
    return [dataclasses.replace(row, given=f"{row.given} {words}".strip()) for row in rows]
