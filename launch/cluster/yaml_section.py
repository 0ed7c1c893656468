"""Reads YAML strictly: every key known, every value checked, every error with its line."""

import difflib
import re
from collections.abc import Callable
from typing import Optional, TypeVar

import yaml

from launch.errors import LaunchError

T = TypeVar("T")
Node = yaml.nodes.Node


class Section:
    """One mapping of the file. Take each known key, then `finish`.

    Args:
      path: the file's name, for messages.
      node: the YAML node, which must be a mapping.
      name: what the section is, for messages.
    """

    def __init__(self, path: str, node: Node, name: str) -> None:
        self.path = path
        self.node = node
        self.name = name
        self._left: dict[str, tuple[Node, Node]] = {}
        self._known: list[str] = []
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{name} must be a mapping (`key: value` lines)")
        for key, value in node.value:
            if key.value in self._left:
                raise self.error(key, f"{key.value} stands twice in {name}; keep one")
            self._left[str(key.value)] = (key, value)

    def error(self, node: Node, message: str) -> LaunchError:
        """An error about `node`: `lab.yaml:12: message`."""
        return LaunchError(f"{self.path}:{node.start_mark.line + 1}: {message}")

    def take(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """The value of a key by `parse`, which raises LaunchError with the rule."""
        node = self.node_of(key)
        return default if node is None else self.parse(key, node, parse)

    def parse(self, key: str, node: Node, parse: Callable[[str], T]) -> T:
        """A scalar by `parse`; its error gets the line and the key."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, f"{key} must be one value, not a list or a mapping")
        try:
            return parse(node.value)
        except LaunchError as error:
            raise self.error(node, f"{key} {error}") from None

    def section(self, key: str) -> "Optional[Section]":
        """The mapping under a key."""
        node = self.node_of(key)
        return None if node is None else Section(self.path, node, key)

    def items(self, key: str) -> list[Node]:
        """The list under a key; empty if there is none."""
        node = self.node_of(key)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"{key} must be a list (`- value` lines)")
        return list(node.value)

    def rest(self) -> dict[str, Node]:
        """Every key that was not taken, for mappings whose keys are free."""
        left, self._left = self._left, {}
        return {key: value for key, (_, value) in left.items()}

    def finish(self) -> None:
        """Refuses keys that nobody took."""
        for key, (node, _) in self._left.items():
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(self._known)}"
            raise self.error(node, f"{self.name} knows no {key}; {hint}")

    def node_of(self, key: str) -> Optional[Node]:
        """The node under a key, as it stands; None if there is none."""
        self._known.append(key)
        return self._left.pop(key, (None, None))[1]


def read(path: str) -> Section:
    """Opens a file with one YAML mapping.

    Raises:
      LaunchError: missing, not UTF-8, not YAML, or not a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            node = yaml.compose(file, Loader=yaml.SafeLoader)
    except OSError as error:
        raise LaunchError(
            f"{path}: {error.strerror}; --cluster names the file that describes the cluster"
        ) from None
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path}: {error}; save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise LaunchError(f"{path}:{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise LaunchError(f"{path}: not YAML: {error}") from None
    if node is None:
        raise LaunchError(f"{path}:1: empty; it must at least list `hosts`")
    return Section(path, node, "the file")


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers within [low, high]."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise LaunchError(f"must be a whole number from {low} to {high}, got {text!r}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    """A parser of a time span."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text) or float(text) <= 0:
        raise LaunchError(f"must be a number of seconds above 0, got {text!r}")
    return float(text)


def seconds_or_off(text: str) -> Optional[float]:
    """A parser of a time limit; `off` is none."""
    return None if text == "off" else seconds(text)


def yes_or_no(text: str) -> bool:
    """A parser of a switch."""
    if text not in ("true", "false"):
        raise LaunchError(f"must be true or false, got {text!r}")
    return text == "true"


def matching(pattern: "re.Pattern[str]", rule: str) -> Callable[[str], str]:
    """A parser of words; `rule` goes into the error."""

    def parse(text: str) -> str:
        if not pattern.fullmatch(text):
            raise LaunchError(f"must be {rule}, got {text!r}")
        return text

    return parse
