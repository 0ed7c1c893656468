"""Settings: dataclass fields that carry the description of their flag. Standard library only."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class Flag:
    """Description of a setting for the command line and the checks.

    Attributes:
      help: text for --help.
      group: heading of --help under which the flag is listed.
      choices: allowed values; empty: any value of the type that is in the range.
      aliases: other names of the flag, without dashes in front.
      at_least: inclusive lower limit; None: no such limit.
      above: exclusive lower limit; None: no such limit.
      at_most: inclusive upper limit; None: no such limit.
      below: exclusive upper limit; None: no such limit.
      needs: other settings, and the values of each with which this one has an effect; True: every
        value but 0 and false. Of `model` and `optimizer`, it names an attribute that those have.
      instead: what to do where it has none, for messages.
    """

    help: str
    group: str
    choices: Collection[str] = ()
    aliases: tuple[str, ...] = ()
    at_least: Optional[float] = None
    above: Optional[float] = None
    at_most: Optional[float] = None
    below: Optional[float] = None
    needs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    instead: str = "leave it out"

    @property
    def rule(self) -> str:
        """The allowed values in words; "" if every value of the type is allowed."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        limits = (
            ("at least", self.at_least),
            ("above", self.above),
            ("at most", self.at_most),
            ("below", self.below),
        )
        return " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)

    @property
    def has_upper_limit(self) -> bool:
        """Whether the setting has a limit of its own for high values."""
        return self.at_most is not None or self.below is not None

    def allows(self, value: Any) -> bool:
        """Returns whether the setting may have this value; None, for unset, is always allowed."""
        if value is None or not self.rule:
            return True
        if self.choices:
            return value in self.choices
        return (
            (isinstance(value, int) or math.isfinite(value))  # A long int would overflow there.
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )


def setting(default: Any, text: str, *, group: str, **more: Any) -> Any:
    """Makes a field of a dataclass of settings.

    Args:
      default: default value; None: a value that fits the run is chosen later.
      text: text for --help.
      group: heading of --help under which the flag is listed.
      **more: other attributes of `Flag`.
    """
    return dataclasses.field(default=default, metadata={"flag": Flag(text, group, **more)})


def flag_of(field: "dataclasses.Field[Any]") -> Flag:
    """Returns the `Flag` of a field that `setting` made."""
    flag: Flag = field.metadata["flag"]
    return flag


def flag_name(field_name: str) -> str:
    """Returns the flag of a field: `--data-dir` for `data_dir`."""
    return "--" + field_name.replace("_", "-")
