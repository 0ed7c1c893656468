"""Loads a YAML or JSON file as a table of texts, each with its place for messages. No TensorFlow.

Nothing is converted: what a text means depends on the setting that it is for.
"""

import json
from dataclasses import dataclass
from typing import Any, NoReturn, Optional

from cifar10.errors import ConfigError

_MOST_KIB = {True: 16 << 10, False: 256}  # is it JSON? The reader of YAML is slow.
_NULL = "tag:yaml.org,2002:null"


class _Object(list[tuple[str, Any]]):
    """The pairs of a JSON object, of which two may have the same key."""


@dataclass(frozen=True)
class Entry:
    """A value in a file.

    Attributes:
      place: the file and, if it is known, the line.
      content: text, None, or a list or mapping as its reader gave it.
    """

    place: str
    content: Any

    @property
    def text(self) -> Optional[str]:
        """The text of a single value that is not null; None for any other value."""
        if isinstance(self.content, str):
            return self.content
        return None

    @property
    def is_null(self) -> bool:
        """Whether the value is null."""
        return self.content is None

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping."""
        return isinstance(self.content, _Object) or _id_of(self.content) == "mapping"

    def table(self, name: str) -> "Table":
        """Returns a mapping as a table.

        Raises:
          ConfigError: the value is no mapping, or a key is given twice or is no text.
        """
        if not self.is_mapping:
            _refuse(self.place, f"{name} must be a mapping (`train_batch_size: 64`)")
        rows: dict[str, Entry] = {}
        path = self.place.rpartition(":")[0] if _id_of(self.content) else self.place
        for key, value in self.content if _is_json(self.content) else self.content.value:
            if isinstance(key, str):
                entry = Entry(path, _of_json(value))
            elif _id_of(key) == "scalar":
                entry, key = _of_yaml(path, key, value), key.value
            else:
                _refuse(_line(path, key), "a key must be one word")
            if key in rows:
                _refuse(entry.place, f"{_short(key)} is given twice; keep one")
            rows[key] = entry
        return Table(rows)

    def words(self) -> list[str]:
        """Returns the texts in a list; [] for any other value."""
        if isinstance(self.content, list):
            return [word for word in self.content if isinstance(word, str)]
        if _id_of(self.content) == "sequence":
            return [node.value for node in self.content.value if _id_of(node) == "scalar"]
        return []


@dataclass(frozen=True)
class Table:
    """A mapping.

    Attributes:
      rows: the values by key, in order.
    """

    rows: dict[str, Entry]


def load(source: str, flag: str) -> Table:
    """Reads a file that holds one mapping.

    Args:
      source: path of a file, JSON if it ends in .json and YAML otherwise; or a JSON object itself,
        which begins with `{`.
      flag: flag that names the file, for messages.

    Raises:
      ConfigError: the file cannot be read, or is not UTF-8, YAML or JSON, or a mapping.
    """
    if not source:
        _refuse(flag, "must not be empty; leave it out, or name a YAML or JSON file of settings")
    is_inline = source.startswith("{")
    is_json = is_inline or source.lower().endswith(".json")
    place = flag if is_inline else source
    text = source if is_inline else _text(source, flag, _MOST_KIB[is_json])
    try:
        content = _json(place, text) if is_json else _yaml(place, text)
    except RecursionError:
        _refuse(place, "nested too deeply for a file of settings")
    if content is None:
        _refuse(place, "empty; write settings into it, such as `train_batch_size: 64`")
    top = Entry(place if is_json else f"{place}:1", content if not is_json else _of_json(content))
    return top.table("the file")


def _text(path: str, flag: str, most_kib: int) -> str:
    try:
        with open(path, "rb") as file:
            data = b""
            while len(data) <= most_kib << 10 and (part := file.read(1 << 18)):
                data += part
    except OSError as error:
        _refuse(path, f"{error.strerror or error}; {flag} names a YAML or JSON file of settings")
    except ValueError as error:  # A NUL in the path.
        _refuse(_short(path), f"{error}; {flag} names a YAML or JSON file of settings")
    if len(data) > most_kib << 10:
        _refuse(path, f"longer than {most_kib:,} KiB, so it is no file of settings")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(path, f"{error.reason} at byte {error.start:,}; save it as UTF-8")


def _json(place: str, text: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=_Object, parse_int=str, parse_float=str, parse_constant=str
        )
    except json.JSONDecodeError as error:
        _refuse(f"{place}:{error.lineno}", f"not JSON: {error.msg}")


def _yaml(place: str, text: str) -> Any:
    import yaml  # Imported here, since most commands name no file.

    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        _refuse(f"{place}:{line}", f"not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        _refuse(place, f"not YAML: {' '.join(str(error).split())}")


def _of_json(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _of_yaml(path: str, key: Any, value: Any) -> Entry:
    if _id_of(value) == "scalar":
        return Entry(_line(path, key), None if value.tag == _NULL else value.value)
    return Entry(_line(path, key), value)


def _id_of(content: Any) -> Optional[str]:
    """Returns the kind of a YAML node: scalar, sequence or mapping; None for anything else."""
    found: Optional[str] = getattr(content, "id", None)
    return found


def _is_json(content: Any) -> bool:
    return isinstance(content, _Object)


def _line(path: str, node: Any) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def _refuse(place: str, message: str) -> NoReturn:
    raise ConfigError(f"{place}: {message}")
