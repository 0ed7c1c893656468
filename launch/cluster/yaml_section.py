"""Reads YAML strictly: checks every key and every value, and names the line of each error."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Optional, TypeVar, get_origin

import yaml

from launch.errors import LaunchError

T = TypeVar("T")
Node = yaml.nodes.Node


class Section:
    """One mapping of a file. Callers take each known key, then call `finish`.

    Args:
      path: the path of the file, for messages.
      node: the YAML node, which must be a mapping.
      name: what to call the section in messages.

    Attributes:
      left: key -> (node of the key, node of the value), for the keys that are not taken yet.
    """

    def __init__(self, path: str, node: Node, name: str) -> None:
        self.path = path
        self.node = node
        self.name = name
        self.left: dict[str, tuple[Node, Node]] = {}
        self._known: list[str] = []
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{name} must be a mapping (`key: value` lines)")
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.error(key, f"a key of {name} must be one word")
            if key.value in self.left:
                raise self.error(key, f"{key.value} is given twice in {name}; keep one")
            self.left[key.value] = (key, value)

    def error(self, node: Node, message: str) -> LaunchError:
        """Returns an error with the line of `node`: `lab.yaml:12: message`."""
        line = "" if node.start_mark is None else f":{node.start_mark.line + 1}"
        return LaunchError(f"{self.path}{line}: {message}")

    @contextmanager
    def at(self, node: Node, words: str = "") -> Iterator[None]:
        """Adds the file, the line of `node` and `words` to each LaunchError of the context."""
        try:
            yield
        except LaunchError as error:
            raise self.error(node, f"{words}{error}") from None

    def take(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """Takes a key; returns its value as read by `parse`, or `default` if there is no such key.

        Raises:
          LaunchError: the value is not a scalar, or `parse` refuses it with a LaunchError.
        """
        node = self.node_of(key)
        return default if node is None else self.parse(key, node, parse)

    def parse(self, key: str, node: Node, parse: Callable[[str], T]) -> T:
        """Reads a scalar with `parse`; adds the file, the line and the key to its LaunchError."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, f"{key} must be one value, not a list or a mapping")
        with self.at(node, f"{key} "):
            return parse(node.value)

    def section(self, key: str) -> "Optional[Section]":
        """Takes a key whose value is a mapping; returns None if there is no such key."""
        node = self.node_of(key)
        return None if node is None else Section(self.path, node, key)

    def finish(self) -> None:
        """Raises LaunchError if a key was not taken."""
        for key, (node, _) in self.left.items():
            known = ", ".join(self._known)
            raise self.error(node, f"{key} is not a key of {self.name}; known: {known}")

    def node_of(self, key: str) -> Optional[Node]:
        """Takes a key and returns the node of its value; None if there is no such key."""
        self._known.append(key)
        return self.left.pop(key, (None, None))[1]


def read_fields(section: Section, settings: type) -> dict[str, Any]:
    """Reads from a section the dataclass fields that are made with `setting`.

    Returns:
      Field name -> value, without the fields that the section does not set.

    Raises:
      LaunchError: a value is wrong; the message names the file and the line.
    """
    nodes = {key: section.node_of(key) for key in keys_of(settings)}
    return {
        found.name: _value(section, key, node, found)
        for key, found in keys_of(settings).items()
        if (node := nodes[key]) is not None
    }


def _value(section: Section, key: str, node: Node, field: "dataclasses.Field[Any]") -> Any:
    """Reads a field's value in the form that its type asks for; see `setting`."""
    rule, key_rule = field.metadata["rule"], field.metadata["key_rule"]
    if get_origin(field.type) is not tuple:
        return section.parse(key, node, rule)
    if key_rule is None:
        if not isinstance(node, yaml.SequenceNode):
            raise section.error(node, f"{key} must be a list (`- value` lines)")
        return tuple(section.parse(key, item, rule) for item in node.value)
    pairs = Section(section.path, node, key).left.items()
    for _, (name_node, _) in pairs:
        section.parse(f"a key of {key}", name_node, key_rule)
    return tuple((name, section.parse(name, value, rule)) for name, (_, value) in pairs)


def read(path: str) -> Section:
    """Reads a cluster file, which holds one mapping in YAML.

    Raises:
      LaunchError: the file cannot be opened, is empty, or is not UTF-8, YAML or a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        rule = "--cluster names the file that describes the cluster"
        raise LaunchError(f"{path}: {error.strerror}; {rule}") from None
    except (UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        place = path if mark is None else f"{path}:{mark.line + 1}"
        raise LaunchError(f"{place}: not YAML in UTF-8: {reason}") from None
    if node is None:
        raise LaunchError(f"{path}:1: empty; it must at least list `hosts`")
    return Section(path, node, "the file")


Rule = Callable[[str], Any]  # parses a value's text; LaunchError: `must be ..., got ...`


def setting(default: Any, rule: Rule, *, key_rule: Optional[Rule] = None) -> Any:
    """Makes a dataclass field that a cluster file can set.

    The field's type decides its form in the file: a list for a tuple, a mapping with any keys for a
    tuple of pairs, and a single value for all other types.

    Args:
      default: the value if the file gives none; MISSING if the field has no default.
      rule: the rule for the value, or for each value of a tuple.
      key_rule: the rule for each key, if the field is a tuple of pairs; otherwise None.
    """
    return field(default=default, metadata={"rule": rule, "key_rule": key_rule})


def whole(low: int, high: int, others: str = "") -> Callable[[str], int]:
    """Makes a rule for whole numbers within [low, high]; its error also names `others`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise LaunchError(f"must be {others}a whole number from {low} to {high}, got {text!r}")
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


def option(values: str, ours: str) -> Callable[[str], str]:
    """Makes a rule for options of a tool, such as `--name` or `--name=value`.

    Args:
      values: a regular expression for each character of a value.
      ours: the names of the options that the launcher sets itself, separated by blanks.
    """
    return matching(
        rf"--(?!({'|'.join(ours.split())})(=|$))[a-z][a-z0-9-]*(={values}+)?",
        f"options like --name or --name=value, and none of {ours}, which the launcher sets",
    )


def keys_of(settings: type) -> "dict[str, dataclasses.Field[Any]]":
    """Returns the keys of a file that set fields of a dataclass -> these fields."""
    return {known.name: known for known in dataclasses.fields(settings) if known.metadata}
