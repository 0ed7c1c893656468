"""A setting: a field of a dataclass that knows its flag. Standard library only."""

import dataclasses
import math
from collections.abc import Collection
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class Flag:
    """What the command line and the checks have to know of a setting.

    Attributes:
      help: what it is.
      group: under which heading --help has it.
      choices: what it may be; none: anything of its type that is in its range.
      aliases: other names of its flag.
      at_least: the smallest number that it may be.
      above: it has to be larger.
      at_most: the largest number that it may be.
      below: it has to be smaller.
    """

    help: str
    group: str
    choices: Collection[str] = ()
    aliases: tuple[str, ...] = ()
    at_least: Optional[float] = None
    above: Optional[float] = None
    at_most: Optional[float] = None
    below: Optional[float] = None

    @property
    def rule(self) -> str:
        """What it may be, in words; "" where it may be anything."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        limits = (
            ("at least", self.at_least),
            ("above", self.above),
            ("at most", self.at_most),
            ("below", self.below),
        )
        return " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)

    def allows(self, value: Any) -> bool:
        """Whether a setting may have this value; None, which is not set, always."""
        if value is None or not self.rule:
            return True
        if self.choices:
            return value in self.choices
        return (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )


def setting(default: Any, text: str, *, group: str, **more: Any) -> Any:
    """A field of a dataclass of settings.

    Args:
      default: its value where nobody says otherwise; None: what fits is chosen later.
      text: what it is, for --help.
      group: under which heading --help has it.
      **more: see `Flag`.
    """
    return dataclasses.field(default=default, metadata={"flag": Flag(text, group, **more)})


def flag_of(field: "dataclasses.Field[Any]") -> Flag:
    """What `setting` noted of a field."""
    flag: Flag = field.metadata["flag"]
    return flag


def flag_name(field_name: str) -> str:
    """`data_dir` -> `--data-dir`."""
    return "--" + field_name.replace("_", "-")
