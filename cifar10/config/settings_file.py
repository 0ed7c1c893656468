"""Reads settings from a file: YAML, JSON, the result.json of a run, or a recipe. No TensorFlow.

A file has settings by name, `train_batch_size: 64`. Each value is read from its text in the same
way as that of a flag. So `2e-4` is a number, which YAML would take for text, and `batch_norm: off`
is a choice, which YAML would take for false.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from cifar10.config.hints import hint
from cifar10.errors import ConfigError
from cifar10.settings import Setting

_RECIPES = Path(__file__).parents[1] / "recipes"
_MOST_KIB = {True: 16 << 10, False: 256}  # is it JSON? The reader of YAML is slow.
# What result.json has of the place of the task that wrote it, which is none of the next run's.
_OF_ONE_TASK = ("images", "ps_hosts", "worker_hosts", "job_name", "task_index")


def recipe_names() -> list[str]:
    """Returns the names of the recipes."""
    return sorted(path.stem for path in _RECIPES.glob("*.yaml"))


def recipe_file(name: str) -> Path:
    """Returns the file of a recipe."""
    return _RECIPES / f"{name}.yaml"


def read(source: str, flag: str, known: Mapping[str, Setting]) -> tuple[dict[str, Any], bool]:
    """Reads a file of settings, or settings that stand on the command line as a JSON object.

    Args:
      source: path of the file, JSON if it ends in .json; or the text of a JSON object, which begins
        with `{`.
      flag: flag that names the file, for messages.
      known: all settings by name.

    Returns:
      The settings by name, and whether the file is the result.json of a run, which has every one.

    Raises:
      ConfigError: the file cannot be read, or is wrong; the message names the place in it.
    """
    is_inline = source.startswith("{")
    path, text = (flag, source) if is_inline else (source, _content(source, flag))
    is_json = is_inline or source.lower().endswith(".json")
    is_result, rows = _of_json(path, text) if is_json else (False, _of_yaml(path, text))
    names = {alias: name for name, one in known.items() for alias in (*one.aliases, one.flag[2:])}
    del names["images"]
    texts: dict[str, Any] = {}
    values = {}
    for place, key, value in rows:
        name = names.get(key.replace("_", "-"))
        if key == "images":
            _refuse(place, "images: name them on the command line")
        if name is None and value is None and is_result:
            continue  # An earlier version had it.
        if name is None:
            meant = hint(key.replace("_", "-"), names, lambda near: near.replace("-", "_"))
            _refuse(place, f"there is no setting {key}{meant or '; --help-all lists all settings'}")
        if name in texts:
            _refuse(place, f"{key} is given twice; keep one")
        texts[name] = value
        if isinstance(value, str):
            values[name] = known[name].read(value, f"{place}: {key}")
        elif value is not None:  # null leaves a setting out.
            _refuse(place, f"{key} must be one value, not a list or a mapping")
    return values, is_result


def _content(path: str, flag: str) -> str:
    if not path:
        _refuse(flag, "must not be empty; leave it out, or name a YAML or JSON file of settings")
    most_kib = _MOST_KIB[path.lower().endswith(".json")]
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


_Rows = Iterable[tuple[str, str, Any]]  # the place, the key and the value, text if it is single


def _of_json(path: str, text: str) -> tuple[bool, _Rows]:
    """Returns whether JSON is the result of a run, and its rows."""
    as_text: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), str)
    try:
        content = json.loads(text, object_pairs_hook=tuple, **as_text)
    except json.JSONDecodeError as error:
        _refuse(f"{path}:{error.lineno}", f"not JSON: {error.msg}")
    except RecursionError:
        _refuse(path, "nested too deeply for a file of settings")
    if not isinstance(content, tuple):
        _refuse(path, "the file must be a mapping (`train_batch_size: 64`)")
    named, left_out = dict(content), []
    is_result = isinstance(named.get("configuration"), tuple)
    if is_result:
        content, chosen = named["configuration"], named.get("chosen")
        left_out = [*_OF_ONE_TASK, *(chosen if isinstance(chosen, list) else ())]
    return is_result, [
        (path, key, str(value).lower() if isinstance(value, bool) else value)
        for key, value in content
        if key not in left_out
    ]


def _of_yaml(path: str, text: str) -> _Rows:
    import yaml  # Imported here, since most commands name no file.

    try:
        content = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        _refuse(f"{path}:{line}", f"not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        _refuse(path, f"not YAML: {' '.join(str(error).split())}")
    except RecursionError:
        _refuse(path, "nested too deeply for a file of settings")
    if not isinstance(content, yaml.MappingNode):
        _refuse(path, "the file must be a mapping (`train_batch_size: 64`)")
    rows = []
    for key, value in content.value:
        place = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            _refuse(place, "a key must be one word")
        is_null = value.tag == "tag:yaml.org,2002:null"
        rows.append((place, key.value, None if is_null else value.value))
    return rows


def _refuse(place: str, message: str) -> NoReturn:
    raise ConfigError(f"{place}: {message}")
