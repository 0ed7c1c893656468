"""Reads settings from a file: YAML, JSON, the result.json of a run, or a recipe. No TensorFlow.

A file has settings by name, `train_batch_size: 64`. Each value is read from its text in the same
way as that of a flag. So `2e-4` is a number, which YAML would take for text, and `batch_norm: off`
is a choice, which YAML would take for false.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from cifar10.config.hints import hint
from cifar10.errors import ConfigError
from cifar10.settings import Setting, nearest

_RECIPES = Path(__file__).parents[1] / "recipes"
_MOST_KIB = {True: 16 << 10, False: 256}  # is it JSON? The reader of YAML is slow.
# What result.json has of the place of the task that wrote it, which is none of the next run's.
_OF_ONE_TASK = ("images", "ps_hosts", "worker_hosts", "job_name", "task_index")


class SettingsFile(NamedTuple):
    """The settings that a file gives.

    Attributes:
      name: what messages and results call the file.
      summary: what --print-recipe says of it.
      is_result: whether the file is the result.json of a run, which has every setting.
      texts: the texts of the settings by name.
      settings: their values by name.
    """

    name: str
    summary: str
    is_result: bool
    texts: Mapping[str, str]
    settings: Mapping[str, Any]


def recipe_names() -> list[str]:
    """Returns the names of the program's own recipes."""
    return sorted(path.stem for path in _RECIPES.glob("*.yaml"))


def find_recipe(name: str, flag: str, known: Mapping[str, Setting]) -> SettingsFile:
    """Reads a recipe of the program's own, or a user's.

    Args:
      name: name of the recipe, or what `read` reads it from.
      flag: flag that names the recipe, for messages.
      known: all settings by name.

    Raises:
      ConfigError: there is no such recipe, or its file is wrong.
    """
    names = recipe_names()
    if name in names:
        return read(str(_RECIPES / f"{name}.yaml"), flag, known, True)._replace(name=name)
    if not name.startswith("{") and not name.lower().endswith((".yaml", ".yml", ".json")):
        raise ConfigError(
            f"{flag} must be one of {', '.join(names)}, or a file that ends in .yaml, .yml or "
            f".json, got {name!r}{nearest(name, names)}"
        )
    return read(name, flag, known, is_recipe=True)


def read(
    source: str, flag: str, known: Mapping[str, Setting], is_recipe: bool = False
) -> SettingsFile:
    """Reads a file of settings, or settings that stand on the command line as a JSON object.

    Args:
      source: path of the file, JSON if it ends in .json; or the text of a JSON object, which begins
        with `{`.
      flag: flag that names the file, for messages.
      known: all settings by name.
      is_recipe: whether the file is a recipe, which may have a name and a summary, and names no
        other recipe.

    Raises:
      ConfigError: the file cannot be read, or is wrong; the message names the place in it.
    """
    path = flag if source.startswith("{") else source
    rows = _rows(path, _load(source, flag))
    titles = {"name": path, "summary": "settings of your own"}
    for title in filter(rows.__contains__, tuple(titles) if is_recipe else ()):
        place, text = rows.pop(title)
        titles[title] = _text(place, text, f"{title} must be text, which results show")
    (_, whole), (_, chosen) = (rows.get(one, ("", None)) for one in ("configuration", "chosen"))
    is_result = getattr(whole, "id", "") == "mapping"
    if is_result and is_recipe:
        raise ConfigError(f"{path} is the result of a run, no recipe; give it to --config")
    if is_result:
        words = map(_plain, getattr(chosen, "value", chosen) or ())
        left_out = {*_OF_ONE_TASK, *(one for one in words if isinstance(one, str))}
        rows = {key: row for key, row in _rows(path, whole).items() if key not in left_out}
    elif is_recipe and "recipe" in rows:
        _refuse(rows["recipe"][0], "a recipe names no other recipe; leave it out")
    texts, values, keys = {}, {}, dict[str, str]()
    for key, (place, text) in rows.items():
        name = _name_of(key, place, known)
        if name in keys:
            _refuse(place, f"{key} and {keys[name]} are the same setting; keep one")
        keys[name] = key
        if text is not None:  # null leaves a setting out.
            texts[name] = _text(place, text, f"{key} must be one value, not a list or a mapping")
            values[name] = known[name].read(texts[name], f"{place}: {key}")
    return SettingsFile(titles["name"], titles["summary"], is_result, texts, values)


def _name_of(key: str, place: str, known: Mapping[str, Setting]) -> str:
    """Returns the setting that a key of a file stands for."""
    names = {alias: name for name, one in known.items() for alias in (*one.aliases, one.flag[2:])}
    word = key.replace("_", "-")
    if word not in names:
        meant = hint(word, names, lambda near: near.replace("-", "_"))
        _refuse(place, f"there is no setting {key}{meant or '; --help-all lists all settings'}")
    if word == "images":
        _refuse(place, "images are no setting of a file; name them on the command line")
    return names[word]


def _load(source: str, flag: str) -> Any:
    """Returns the content of a file, or of a JSON object, as a node of YAML.

    Raises:
      ConfigError: the file cannot be read, or is not UTF-8, YAML or JSON, or is empty.
    """
    import yaml  # Imported here, since most commands name no file.

    if not source:
        _refuse(flag, "must not be empty; leave it out, or name a YAML or JSON file of settings")
    is_inline = source.startswith("{")
    is_json = is_inline or source.lower().endswith(".json")
    as_text: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), str)
    place, text = (flag, source) if is_inline else (source, _content(source, flag, is_json))
    try:
        if is_json:
            as_mapping = functools.partial(yaml.MappingNode, "")
            content = json.loads(text, object_pairs_hook=as_mapping, **as_text)
        else:
            content = yaml.compose(text, Loader=yaml.SafeLoader)
    except json.JSONDecodeError as error:
        _refuse(f"{place}:{error.lineno}", f"not JSON: {error.msg}")
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        _refuse(f"{place}:{line}", f"not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        _refuse(place, f"not YAML: {' '.join(str(error).split())}")
    except RecursionError:
        _refuse(place, "nested too deeply for a file of settings")
    if content is None:
        _refuse(place, "empty; write settings into it, such as `train_batch_size: 64`")
    return content


def _content(path: str, flag: str, is_json: bool) -> str:
    most_kib = _MOST_KIB[is_json]
    try:
        with open(path, "rb") as file:
            data = file.read((most_kib << 10) + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path.
        reason = getattr(error, "strerror", None) or error
        _refuse(path, f"{reason}; {flag} names a YAML or JSON file of settings")
    if len(data) > most_kib << 10:
        _refuse(path, f"longer than {most_kib:,} KiB, so it is no file of settings")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(path, f"{error.reason} at byte {error.start:,}; save it as UTF-8")


def _rows(path: str, content: Any) -> dict[str, tuple[str, Any]]:
    """Returns the values of a mapping by key, each with its place for messages.

    Raises:
      ConfigError: the content is no mapping, or a key is given twice or is no text.
    """
    if getattr(content, "id", "") != "mapping":
        _refuse(_place(path, content), "the file must be a mapping (`train_batch_size: 64`)")
    rows: dict[str, tuple[str, Any]] = {}
    for key, value in content.value:
        place, word = _place(path, key), _plain(key)
        if not isinstance(word, str):
            _refuse(place, "a key must be one word")
        if word in rows:
            _refuse(place, f"{word[:60]} is given twice; keep one")
        rows[word] = place, _plain(value)
    return rows


def _plain(value: Any) -> Any:
    """Returns a single value as text, null as None, and another value as it is."""
    if getattr(value, "id", "") == "scalar":
        return None if value.tag == "tag:yaml.org,2002:null" else value.value
    return str(value).lower() if isinstance(value, bool) else value


def _text(place: str, value: Any, rule: str) -> str:
    return value if isinstance(value, str) else _refuse(place, rule)


def _place(path: str, node: Any) -> str:
    mark = getattr(node, "start_mark", None)
    return f"{path}:{mark.line + 1}" if mark else path


def _refuse(place: str, message: str) -> NoReturn:
    raise ConfigError(f"{place}: {message}")
