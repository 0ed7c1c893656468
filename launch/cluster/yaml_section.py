"""Reads YAML strictly: checks every key and every value, and names the line of each error."""

import dataclasses
import difflib
from collections.abc import Callable
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
        return LaunchError(f"{self.path}:{node.start_mark.line + 1}: {message}")

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
        try:
            return parse(node.value)
        except LaunchError as error:
            raise self.error(node, f"{key} {error}") from None

    def section(self, key: str) -> "Optional[Section]":
        """Takes a key whose value is a mapping; returns None if there is no such key."""
        node = self.node_of(key)
        return None if node is None else Section(self.path, node, key)

    def finish(self) -> None:
        """Raises LaunchError if a key was not taken."""
        for key, (node, _) in self.left.items():
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(self._known)}"
            raise self.error(node, f"{key} is not a key of {self.name}; {hint}")

    def node_of(self, key: str) -> Optional[Node]:
        """Takes a key and returns the node of its value; None if there is no such key."""
        self._known.append(key)
        return self.left.pop(key, (None, None))[1]


def read_settings(section: Section, settings: type[T]) -> T:
    """Reads a whole section into a dataclass whose fields are made with `rules.setting`.

    Raises:
      LaunchError: a key is unknown, or a value is wrong; the message names the file and the line.
    """
    found = settings(**read_fields(section, settings))
    section.finish()
    return found


def read_fields(section: Section, settings: type) -> dict[str, Any]:
    """Reads from a section the dataclass fields that are made with `rules.setting`.

    Returns:
      Field name -> value, without the fields that the section does not set.

    Raises:
      LaunchError: a value is wrong; the message names the file and the line.
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
    """Reads a field's value in the form that its type asks for; see `rules.setting`."""
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


def read(
    path: str,
    rule: str = "--cluster names the file that describes the cluster",
    way_out: str = "it must at least list `hosts`",
) -> Section:
    """Reads a file that holds one YAML mapping.

    Args:
      path: path of the file.
      rule: what the file is, for the message about one that cannot be opened.
      way_out: what to do about an empty file.

    Raises:
      LaunchError: the file cannot be opened, is empty, or is not UTF-8, YAML or a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            node = yaml.compose(file, Loader=yaml.SafeLoader)
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror}; {rule}") from None
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path}: {error}; save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise LaunchError(f"{path}:{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise LaunchError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise LaunchError(f"{path}: nested too deeply to be read") from None
    if node is None:
        raise LaunchError(f"{path}:1: empty; {way_out}")
    return Section(path, node, "the file")
