"""Reads settings from a file: YAML, JSON, or the result.json of a run. No TensorFlow.

A file has the settings of `cifar10.config.fields.ConfigFields` by name, `train_batch_size: 64`.
Each value is read from its text in the same way as that of a flag. So `2e-4` is a number, which
YAML would take for text, and `batch_norm: off` is a choice, which YAML would take for false.
"""

import dataclasses
import functools
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cifar10.config.document import Entry, Table, load
from cifar10.config.fields import FIELDS
from cifar10.config.values import hint, read_value
from cifar10.errors import ConfigError
from cifar10.settings import flag_of

# What result.json has of the place of the task that wrote it, which is none of the next run's.
_OF_ONE_TASK = ("images", "ps_hosts", "worker_hosts", "job_name", "task_index")


@dataclasses.dataclass(frozen=True)
class SettingsFile:
    """The settings that a file gives.

    Attributes:
      name: what messages and results call the file.
      settings: the values by name.
      given: names of the settings that count as given; in a result, which has every setting, those
        that differ from their defaults.
      is_result: whether the file is the result.json of a run.
    """

    name: str
    settings: Mapping[str, Any]
    given: Collection[str]
    is_result: bool


@functools.cache
def _names() -> dict[str, str]:
    """Returns the names and the other names of all settings, with dashes -> their name."""
    aliases = {alias: name for name in FIELDS for alias in flag_of(FIELDS[name]).aliases}
    return {**aliases, **{name.replace("_", "-"): name for name in FIELDS}}


def read(source: str, flag: str, is_recipe: bool = False) -> SettingsFile:
    """Reads a file of settings, or settings that stand on the command line as a JSON object.

    Args:
      source: path of the file, or the text of a JSON object.
      flag: flag that names the file, for messages.
      is_recipe: whether the file is a recipe, which may have a name and names no other recipe.

    Raises:
      ConfigError: the file cannot be read, or is wrong; the message names the place in it.
    """
    table = load(source, flag)
    name = flag if source.startswith("{") else source
    if is_recipe and "name" in table.rows:
        row = table.rows.pop("name")
        name = row.text or _refuse(row, "name must be text, which results show")
    configuration = table.rows.get("configuration")
    if configuration is None or not configuration.is_mapping:
        settings = dict(_settings(table, is_recipe))
        return SettingsFile(name, settings, frozenset(settings), is_result=False)
    chosen = table.rows["chosen"].words() if "chosen" in table.rows else []
    inner = configuration.table("configuration")
    for left_out in (*_OF_ONE_TASK, *chosen):
        inner.rows.pop(left_out, None)
    settings = dict(_settings(inner, is_recipe))
    if settings.get("weight_decay") == 0:  # Earlier versions took both.
        settings.pop("decay_biases", None)
    differing = {key for key, value in settings.items() if value != FIELDS[key].default}
    return SettingsFile(name, settings, frozenset(differing), is_result=True)


def _settings(table: Table, is_recipe: bool) -> Iterator[tuple[str, Any]]:
    """Yields the name and the value of each setting; null leaves a setting out."""
    seen: dict[str, str] = {}
    for key, entry in table.rows.items():
        word = key.replace("_", "-")
        name = _names().get(word)
        if name is None:
            meant = hint(word, _names(), lambda near: near.replace("-", "_"))
            way_out = meant or "; --help-all lists all settings"
            _refuse(entry, f"there is no setting {key}{way_out}")
        if name == "images":
            _refuse(entry, "images are no setting of a file; name them on the command line")
        if name == "recipe" and is_recipe:
            _refuse(entry, "a recipe names no other recipe; leave it out")
        if name in seen:
            _refuse(entry, f"{key} and {seen[name]} are the same setting; keep one")
        seen[name] = key
        if not entry.is_null:
            yield name, _value(name, key, entry)


def _value(name: str, key: str, entry: Entry) -> Any:
    if entry.text is None:
        _refuse(entry, f"{key} must be one value, not a list or a mapping")
    return read_value(name, entry.text, f"{entry.place}: {key}")


def _refuse(entry: Entry, message: str) -> typing.NoReturn:
    raise ConfigError(f"{entry.place}: {message}")


def is_path(word: str) -> bool:
    """Returns whether a word names a file of settings, or is a JSON object of them."""
    return word.startswith("{") or word.lower().endswith((".yaml", ".yml", ".json"))
