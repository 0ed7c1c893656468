"""Puts the files of settings that the training's arguments name into the arguments themselves.

`--config FILE` names a file of the folder in which the launcher was started. Tasks run in other
folders, on other hosts or in containers. So the launcher reads the file, and passes its settings
as one JSON object, `--config={"train_batch_size": "64"}`, which the training program takes as well.
The launcher knows no settings but the places of the data and the output; the training program
checks names and values.
"""

import json
from collections.abc import Sequence
from typing import Any, Optional

import yaml

from launch.cluster.yaml_section import Section, read
from launch.errors import LaunchError

_CONFIG = "--config"
_OF_A_RESULT = ("configuration", "chosen")  # what a run needs of the result.json of another one
_LONGEST = 100_000  # bytes; the longest argument of a process on Linux has 128 KiB
_OTHER_NAMES = {
    "output_dir": ("output_dir", "job_dir"),
    "data_dir": ("data_dir",),
    "work_dir": ("work_dir",),
}


def with_settings(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with settings in the place of files.

    Raises:
      LaunchError: a file cannot be read, is no mapping of single values, or is too long.
    """
    result: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if word == "--":  # Only image files follow.
            return [*result, word, *words]
        if flag != _CONFIG:
            result.append(word)
            continue
        path = value if equals else next(words, None)
        if not path or path.startswith("{"):  # The training program refuses an empty one.
            result += [word] if equals or path is None else [word, path]
        else:
            result.append(f"{_CONFIG}={_as_json(path)}")
    return result


def place(arguments: Sequence[str], setting: str) -> Optional[str]:
    """Returns the folder that the arguments give for a setting, as given; None if none.

    Flags override --config.

    Args:
      arguments: the training's arguments, as `with_settings` returns them.
      setting: `data_dir`, `output_dir` or `work_dir`.
    """
    names = _OTHER_NAMES[setting]
    found: dict[str, Any] = {}
    for word, following in zip(arguments, [*arguments[1:], ""]):
        flag, equals, value = word.partition("=")
        value = value if equals else following
        given = {flag[2:]: value} if flag != _CONFIG else _settings(value)
        for key, folder in given.items():
            if flag.startswith("--") and key.replace("-", "_") in names and isinstance(folder, str):
                found[flag if flag == _CONFIG else "flag"] = folder
    return found.get("flag", found.get(_CONFIG))


def _settings(text: str) -> dict[str, Any]:
    """Returns the settings of a JSON object; {} for what the training program refuses."""
    try:
        content = json.loads(text) if text.startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    configuration = content.get("configuration")
    return configuration if isinstance(configuration, dict) else content


def _as_json(path: str) -> str:
    """Returns the settings of a YAML or JSON file as a JSON object on one line.

    The values are text, since their types depend on the settings.

    Raises:
      LaunchError: the file cannot be read, is no mapping of single values, or is too long.
    """
    section = read(path, f"{_CONFIG} names a file of settings", "write settings into it")
    rows = {key: node for key, (_, node) in section.left.items()}
    if isinstance(rows.get("configuration"), yaml.MappingNode):
        found = {key: _plain(section, key, rows[key]) for key in _OF_A_RESULT if key in rows}
    else:
        found = {key: _scalar(section, key, node) for key, node in rows.items()}
    text = json.dumps(found)
    if len(text) > _LONGEST:
        raise LaunchError(
            f"{path}: its settings have {len(text):,} bytes, but an argument has at most "
            f"{_LONGEST:,}; name a file of settings"
        )
    return text


def _plain(section: Section, key: str, node: yaml.nodes.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        rows = Section(section.path, node, key).left.items()
        return {name: _plain(section, name, value) for name, (_, value) in rows}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(section, key, one) for one in node.value]
    return _scalar(section, key, node)


def _scalar(section: Section, key: str, node: yaml.nodes.Node) -> Optional[str]:
    is_null = node.tag == "tag:yaml.org,2002:null"
    return None if is_null else section.parse(key, node, str)
