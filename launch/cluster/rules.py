"""Rules for the values of settings, and dataclass fields that have such rules.

A field that is made with `setting` is a key of cluster files, which `launch.cluster.yaml_section`
reads. This module does not import YAML, which takes time to load.
"""

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any, Optional

from launch.errors import LaunchError

Rule = Callable[[str], Any]  # parses a value's text; LaunchError: `must be ..., got ...`


def setting(
    default: Any, rule: Rule, *, key_rule: Optional[Rule] = None, name: Optional[str] = None
) -> Any:
    """Makes a dataclass field that a cluster file can set.

    The field's type decides its form in the file: a list for a tuple, a mapping with any keys for a
    tuple of pairs, and a single value for all other types.

    Args:
      default: the value if the file gives none; MISSING if the field has no default.
      rule: the rule for the value, or for each value of a tuple.
      key_rule: the rule for each key, if the field is a tuple of pairs; otherwise None.
      name: the key in the file; by default, the field's name.
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
    """Reads a positive number of seconds."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) or float(text) <= 0:
        raise LaunchError(f"must be a number of seconds above 0, got {text!r}")
    return float(text)


def seconds_or_off(text: str) -> Optional[float]:
    """Reads a time limit in seconds; returns None for `off`."""
    return None if text == "off" else seconds(text)


def yes_or_no(text: str) -> bool:
    """Reads `true` or `false`."""
    if text not in ("true", "false"):
        raise LaunchError(f"must be true or false, got {text!r}")
    return text == "true"


def matching(pattern: str, words: str) -> Callable[[str], str]:
    """Makes a rule for text that matches a pattern.

    Args:
      pattern: a regular expression for the whole text; it is compiled at its first use.
      words: a description of the pattern, for the error.
    """

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise LaunchError(f"must be {words}, got {text!r}")
        return text

    return read
