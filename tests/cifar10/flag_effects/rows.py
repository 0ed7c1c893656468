"""A row of the table: a setting, a probe of its effect, and the expected results."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name


@dataclasses.dataclass(frozen=True)
class Row:
    """What a setting changes.

    Attributes:
      setting: name of the setting in TrainConfig.
      probe: function that observes the effect of a configuration.
      seen: the setting's value on the command line -> expected result of the probe; the value None
        leaves the flag out. No two results may be equal, so that a row fails where its setting is
        ignored.
      given: other command-line arguments, the same for all values.
      fixture: name of a pytest fixture that the row needs.
    """

    setting: str
    probe: Callable[[TrainConfig], Any]
    seen: Mapping[Optional[str], Any]
    given: str = ""
    fixture: Optional[str] = None

    def arguments(self, value: Optional[str]) -> list[str]:
        """Returns the command line that gives the setting a value."""
        return [*self.given.split(), *argument(self.setting, value)]

    def __str__(self) -> str:
        # Without `given`, since a free port in it differs between the processes that collect tests.
        return f"{self.setting}-{self.probe.__name__}"


def argument(setting: str, value: Optional[str]) -> list[str]:
    """Returns the flag that gives a setting a value, as a list; empty for None."""
    return [] if value is None else [f"{flag_name(setting)}={value}"]


def with_more(rows: Sequence[Row], words: str) -> list[Row]:
    """Returns the rows with more arguments on each command line."""
    return [dataclasses.replace(row, given=f"{row.given} {words}".strip()) for row in rows]
