"""Reads YAML strictly: every key known, every value checked, every error with its line."""

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any, Optional, TypeVar, get_origin

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

    Attributes:
      left: the keys that nobody has taken yet -> (node of the key, node of the value).
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
                raise self.error(key, f"{key.value} stands twice in {name}; keep one")
            self.left[key.value] = (key, value)

    def error(self, node: Node, message: str) -> LaunchError:
        """Makes an error about `node`: `lab.yaml:12: message`."""
        return LaunchError(f"{self.path}:{node.start_mark.line + 1}: {message}")

    def take(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """Reads the value of a key with `parse`, which raises LaunchError with the rule."""
        node = self.node_of(key)
        return default if node is None else self.parse(key, node, parse)

    def parse(self, key: str, node: Node, parse: Callable[[str], T]) -> T:
        """Reads a scalar with `parse`; adds the line and the key to its error."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, f"{key} must be one value, not a list or a mapping")
        try:
            return parse(node.value)
        except LaunchError as error:
            raise self.error(node, f"{key} {error}") from None

    def section(self, key: str) -> "Optional[Section]":
        """Takes the mapping under a key; None if there is none."""
        node = self.node_of(key)
        return None if node is None else Section(self.path, node, key)

    def finish(self) -> None:
        """Refuses keys that nobody took."""
        for key, (node, _) in self.left.items():
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(self._known)}"
            raise self.error(node, f"{self.name} knows no {key}; {hint}")

    def node_of(self, key: str) -> Optional[Node]:
        """Takes the node under a key, unread; None if there is none."""
        self._known.append(key)
        return self.left.pop(key, (None, None))[1]


def read_settings(section: Section, settings: type[T]) -> T:
    """Reads a whole section into a dataclass of settings.

    Raises:
      LaunchError: with the file's line, the value, the rule and the way out.
    """
    found = settings(**read_fields(section, settings))
    section.finish()
    return found


def read_fields(section: Section, settings: type) -> dict[str, Any]:
    """Reads those fields of a dataclass from a section that are made with `rules.setting`.

    Returns:
      Field name -> value; what the section leaves out is left out.

    Raises:
      LaunchError: with the file's line, the value, the rule and the way out.
    """
    found = {}
    for field in dataclasses.fields(settings):
        if "rule" in field.metadata:
            key = field.metadata["name"] or field.name
            node = section.node_of(key)
            if node is not None:
                found[field.name] = _value(section, key, node, field)
    return found


def _value(section: Section, key: str, node: Node, field: "dataclasses.Field[Any]") -> Any:
    """Reads a field's value, by its type: a list, a mapping with free keys, or one value."""
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
