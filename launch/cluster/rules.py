"""What settings may be: rules for text, and fields of dataclasses that carry them.

A cluster file can set a field that is made with `setting`: `launch.cluster.yaml_section` reads it.
Nothing here needs YAML, which takes time to load.
"""

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any, Optional

from launch.errors import LaunchError

Rule = Callable[[str], Any]  # the value that a text stands for; LaunchError: `must be ..., got ...`


def setting(
    default: Any, rule: Rule, *, key_rule: Optional[Rule] = None, name: Optional[str] = None
) -> Any:
    """Makes a field of a dataclass that a cluster file can set.

    Its type says what stands in the file: a list of values for a tuple, a mapping with free keys
    for a tuple of pairs, and one value for all else.

    Args:
      default: where the file says nothing; MISSING: whoever makes one must give it.
      rule: for the value, or each of them.
      key_rule: for the keys, where the field is a tuple of pairs; only there.
      name: in the file, if it is not the field's own.
    """
    return field(default=default, metadata={"rule": rule, "key_rule": key_rule, "name": name})


def whole(low: int, high: int) -> Callable[[str], int]:
    """Makes a rule for whole numbers within [low, high]."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise LaunchError(f"must be a whole number from {low} to {high}, got {text!r}")
        return int(text)

    return read


def seconds(text: str) -> float:
    """The rule for a time span."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) or float(text) <= 0:
        raise LaunchError(f"must be a number of seconds above 0, got {text!r}")
    return float(text)


def seconds_or_off(text: str) -> Optional[float]:
    """The rule for a time limit; `off` is none."""
    return None if text == "off" else seconds(text)


def yes_or_no(text: str) -> bool:
    """The rule for a switch."""
    if text not in ("true", "false"):
        raise LaunchError(f"must be true or false, got {text!r}")
    return text == "true"


def matching(pattern: str, words: str) -> Callable[[str], str]:
    """Makes a rule for text that matches a pattern.

    Args:
      pattern: a regular expression for all of it; it is compiled only when it is needed.
      words: what the pattern asks for, for the error.
    """

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise LaunchError(f"must be {words}, got {text!r}")
        return text

    return read
