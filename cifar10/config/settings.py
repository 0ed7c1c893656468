"""Settings: dataclass fields that say all about their flag and values. Standard library only."""

import dataclasses
import math
import typing
from collections.abc import Collection, Mapping
from operator import ge, gt, le, lt
from typing import Any, Callable, Optional

from cifar10.errors import ConfigError

BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}
_LIMITS = {"at_least": ge, "above": gt, "at_most": le, "below": lt}
# Larger numbers have no use, and would overflow in TensorFlow or in sums of them.
_HIGHEST: dict[Any, int] = {int: 2**31 - 1, float: 10**9}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting: its flag and its values.

    Attributes:
      help: text for --help.
      default: its default value; None: a value that fits the run is chosen later.
      group: heading of --help under which the flag is listed.
      common: whether --help shows the flag, as --help-all does.
      metavar: what stands for its value in --help, DIR or PATH for a path; "": that fits the type.
      choices: allowed values; empty: any value of the type that is in the range.
      aliases: other names of the flag, without dashes in front.
      at_least: inclusive lower limit; None: no such limit.
      above: exclusive lower limit; None: no such limit.
      at_most: inclusive upper limit; None: no such limit.
      below: exclusive upper limit; None: no such limit.
      form: a rule in words, and whether a value keeps it, for what limits do not say.
      needs: what it needs of others to have an effect, as a row of `cifar10.config.fields.NEEDS`,
        for a setting of a program outside the tree.
      instead: what to do where it has no effect, for messages.
      name: the name of the field; `settings_of` sets it.
      kind: the type of its values, int for Optional[int]; `settings_of` sets it.
    """

    help: str
    default: Any
    group: str
    common: bool = False
    metavar: str = ""
    choices: Collection[str] = ()
    aliases: tuple[str, ...] = ()
    at_least: Optional[float] = None
    above: Optional[float] = None
    at_most: Optional[float] = None
    below: Optional[float] = None
    form: Optional[tuple[str, Callable[[Any], bool]]] = None
    needs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    instead: str = "leave it out"
    name: str = ""
    kind: Any = str

    @property
    def _limits(self) -> Mapping[str, float]:
        return {name: getattr(self, name) for name in _LIMITS if getattr(self, name) is not None}

    @property
    def rule(self) -> str:
        """The allowed values in words; "" if every value of the type is allowed."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        limits = (f"{name.replace('_', ' ')} {limit}" for name, limit in self._limits.items())
        return self.form[0] if self.form else " and ".join(limits)

    def read(self, text: str, name: str) -> Any:
        """Returns the value that a text stands for.

        Args:
          text: a value of a flag, or in a file.
          name: what messages call the setting.

        Raises:
          ConfigError: the text is no such value, or the value is not allowed.
        """
        try:
            value = BOOLEANS[text.lower()] if self.kind is bool else self.kind(text)
        except (KeyError, ValueError):
            raise ConfigError(f"{name} must be {_KINDS[self.kind]}, got {text[:40]!r}") from None
        self.check(value, name)
        return value

    def check(self, value: Any, name: str) -> None:
        """Checks a value, of the type of the setting, by itself; None, for unset, is allowed.

        Raises:
          ConfigError: it is not allowed; `name` is what the message calls the setting.
        """
        if value is None:
            return
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} must be a finite number, got {value}")
        has_limit = self.at_most is not None or self.below is not None
        highest = None if has_limit else _HIGHEST.get(type(value))
        if highest is not None and value > highest:
            raise ConfigError(f"{name} must be at most {highest:,}, got {str(value)[:40]}")
        keeps = not self.choices or value in self.choices
        keeps = keeps and all(_LIMITS[name](value, limit) for name, limit in self._limits.items())
        if not (keeps and (self.form is None or self.form[1](value))):
            quoted = repr(value) if self.form and self.kind is str else value
            meant = nearest(value, self.choices) if self.choices else ""
            raise ConfigError(f"{name} must be {self.rule}, got {quoted}{meant}")


def setting(text: str, default: Any = None, *, group: str, **more: Any) -> Any:
    """Makes a field of a dataclass of settings.

    Args:
      text: text for --help.
      default: default value; None: a value that fits the run is chosen later.
      group: heading of --help under which the flag is listed.
      **more: other attributes of `Setting`.
    """
    described = Setting(text, default, group, **more)
    return dataclasses.field(default=default, metadata={"setting": described})


def settings_of(config_type: Any) -> Mapping[str, Setting]:
    """Returns the settings of a dataclass by name, in their order."""
    hints, found = typing.get_type_hints(config_type), {}
    for field in dataclasses.fields(config_type):
        described: Setting = field.metadata["setting"]
        kind = (*typing.get_args(hints[field.name]), hints[field.name])[0]  # int of Optional[int]
        found[field.name] = dataclasses.replace(described, name=field.name, kind=kind)
    return found


def flag_name(field_name: str) -> str:
    """Returns the flag of a field: `--data-dir` for `data_dir`."""
    return "--" + field_name.replace("_", "-")


def shown(value: Any) -> str:
    """Returns a value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest(word: str, known: Collection[str], spell: Callable[[str], str] = str) -> str:
    """Returns `; did you mean ...?` with the most similar known word; "" if none is similar."""
    import difflib  # Imported here, since only mistakes need it.

    near = difflib.get_close_matches(word[:100], known, n=1)
    return f"; did you mean {spell(near[0])}?" if near else ""
