"""Reads settings from a file: YAML, JSON, the result.json of a run, or a recipe. No TensorFlow.

A file has settings by name, `train_batch_size: 64`. Each value is kept as its text, to be read in
the same way as that of a flag. So `2e-4` is a number, which YAML would take for text, and
`batch_norm: off` is a choice, which YAML would take for false.
"""

import json
from pathlib import Path
from typing import Any

from cifar10.config.settings import shown
from cifar10.errors import ConfigError

_RECIPES = Path(__file__).parents[1] / "recipes"
_NO_MAPPING = "the file must be a mapping (`train_batch_size: 64`)"
# What result.json has of the task that wrote it, which is not for the next run.
_OF_ONE_TASK = ("images", "ps_hosts", "worker_hosts", "job_name", "task_index")

# The location, the key and the value of each setting: text if it is single, or None.
Entries = list[tuple[str, str, Any]]


def recipe_names() -> list[str]:
    """Returns the names of the recipes."""
    return sorted(path.stem for path in _RECIPES.glob("*.yaml"))


def recipe_file(name: str) -> Path:
    """Returns the file of a recipe."""
    return _RECIPES / f"{name}.yaml"


def read(path: str, flag: str) -> tuple[Entries, bool]:
    """Reads a file of settings, which is JSON if its name ends in .json.

    Args:
      path: path of the file.
      flag: flag that names the file, for messages.

    Returns:
      The entries of the file, in which a key may come twice, and whether it is the result.json of
      a run, which has every setting.

    Raises:
      ConfigError: the file cannot be read, or is wrong; the message names the line.
    """
    if path.startswith("{"):  # as the launcher passes settings to a task
        return _of_json(flag, path)
    is_json = path.lower().endswith(".json")
    most_kib = 16 << 10 if is_json else 256  # The reader of YAML is slow.
    try:
        with open(path, "rb") as file:
            data = file.read((most_kib << 10) + 1)
        if len(data) > most_kib << 10:
            raise ConfigError(f"{path}: longer than {most_kib:,} KiB, so it is no file of settings")
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or no UTF-8.
        reason = getattr(error, "strerror", None) or error
        way_out = f"{flag} names a YAML or JSON file of settings"
        raise ConfigError(f"{path or flag}: {reason}; {way_out}") from error
    return _of_json(path, text) if is_json else (_of_yaml(path, text), False)


def _of_json(path: str, text: str) -> tuple[Entries, bool]:
    """Returns the entries of JSON, and whether it is the result of a run."""
    try:
        # A mapping becomes a tuple of pairs, since a dict would hide a key that comes twice.
        content = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise ConfigError(f"{path}:{line}: not JSON: {error}") from error
    if not isinstance(content, tuple):
        raise ConfigError(f"{path}: {_NO_MAPPING}")
    result, left_out = dict(content), list[Any]()
    is_result = isinstance(result.get("configuration"), tuple)
    if is_result:
        content, chosen = result["configuration"], result.get("chosen")
        left_out = [*_OF_ONE_TASK, *(chosen if isinstance(chosen, list) else ())]
    return [(path, key, _text(value)) for key, value in content if key not in left_out], is_result


def _text(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return list(value)
    return None if value is None else shown(value)


def _of_yaml(path: str, text: str) -> Entries:
    import yaml  # Imported here, since most commands name no file.

    try:
        content = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {reason}") from error
    if not isinstance(content, yaml.MappingNode):
        raise ConfigError(f"{path}: {_NO_MAPPING}")
    entries = []
    for key, value in content.value:
        location = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{location}: a key must be one word")
        is_null = value.tag == "tag:yaml.org,2002:null"
        entries.append((location, key.value, None if is_null else value.value))
    return entries
