"""Puts the files of settings that the training's arguments name into the arguments themselves.

`--config FILE` and `--recipe FILE` name files of the folder in which the launcher was started.
Tasks run in other folders, on other hosts or in containers. So the launcher reads the files, and
passes their settings as one JSON object, `--config={"train_batch_size": "64"}`, which the training
program takes as well. The launcher knows no settings but the places of the data and the output; the
training program checks names and values.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import yaml

from launch.cluster.yaml_section import Section, read
from launch.errors import LaunchError

_FLAGS = ("--config", "--recipe")
_ENDINGS = (".yaml", ".yml", ".json")
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
        if flag not in _FLAGS:
            result.append(word)
            continue
        path = value if equals else next(words, None)
        if path is None or not _is_file(flag, path):
            result += [word] if equals or path is None else [word, path]
        else:
            result.append(f"{flag}={_as_json(flag, path)}")
    return result


def place(arguments: Sequence[str], setting: str) -> Optional[str]:
    """Returns the folder that the arguments give for a setting, as given; None if none.

    Flags override --config, which overrides --recipe.

    Args:
      arguments: the training's arguments, as `with_settings` returns them.
      setting: `data_dir`, `output_dir` or `work_dir`.
    """
    found: dict[str, str] = {}
    for word, following in zip(arguments, [*arguments[1:], ""]):
        flag, equals, value = word.partition("=")
        value = value if equals else following
        name = flag[2:].replace("-", "_")
        if flag.startswith("--") and name in _OTHER_NAMES[setting]:
            found["flag"] = value
        elif flag in _FLAGS and value.startswith("{"):
            found.update((flag, folder) for folder in _places(value, setting))
    return next((found[key] for key in ("flag", *_FLAGS) if key in found), None)


def _places(text: str, setting: str) -> Iterator[str]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # The training program refuses it.
        return
    configuration = content.get("configuration")
    for key, value in (configuration if isinstance(configuration, dict) else content).items():
        if key.replace("-", "_") in _OTHER_NAMES[setting] and isinstance(value, str):
            yield value


def _is_file(flag: str, path: str) -> bool:
    """Returns whether a value names a file: any value of --config, some of --recipe."""
    if not path or path.startswith("{"):  # The training program refuses an empty one.
        return False
    return flag == "--config" or path.lower().endswith(_ENDINGS)


def _as_json(flag: str, path: str) -> str:
    """Returns the settings of a file as a JSON object on one line.

    Raises:
      LaunchError: the file cannot be read, is no mapping of single values, or is too long.
    """
    content = _of_json(path, flag) if path.lower().endswith(".json") else _of_yaml(path, flag)
    if isinstance(content.get("configuration"), dict):
        content = {key: content[key] for key in _OF_A_RESULT if key in content}
    if flag == "--recipe":
        content.setdefault("name", path)
    text = json.dumps(content)
    if len(text) > _LONGEST:
        raise LaunchError(
            f"{path}: its settings have {len(text):,} bytes, but an argument has at most "
            f"{_LONGEST:,}; name a file of settings"
        )
    return text


def _of_json(path: str, flag: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file, object_pairs_hook=lambda pairs: _unique(path, pairs))
    except OSError as error:
        raise LaunchError(f"{path}: {error.strerror}; {flag} names a file of settings") from None
    except json.JSONDecodeError as error:
        raise LaunchError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path}: {error}; save it as UTF-8") from None
    except ValueError as error:  # A number with thousands of digits, or a NUL in the path.
        raise LaunchError(f"{path}: {error}; {flag} names a file of settings") from None
    except RecursionError:
        raise LaunchError(f"{path}: nested too deeply for a file of settings") from None
    if not isinstance(content, dict):
        raise LaunchError(f"{path}: the file must be a mapping (`train_batch_size: 64`)")
    return content


def _unique(path: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise LaunchError(f"{path}: {key[:60]} is given twice; keep one")
        found[key] = value
    return found


def _of_yaml(path: str, flag: str) -> dict[str, Any]:
    """Returns a file's values as text, since their types depend on the settings."""
    section = read(path, f"{flag} names a file of settings", "write settings into it")
    found: dict[str, Any] = {}
    for key, (_, node) in section.left.items():
        if key == "configuration" and isinstance(node, yaml.MappingNode):
            inner = Section(path, node, key).left.items()
            found[key] = {name: _scalar(section, name, value) for name, (_, value) in inner}
        elif key == "chosen" and isinstance(node, yaml.SequenceNode):
            found[key] = [_scalar(section, key, one) for one in node.value]
        elif isinstance(node, yaml.ScalarNode) or "configuration" not in section.left:
            found[key] = _scalar(section, key, node)
    return found


def _scalar(section: Section, key: str, node: yaml.nodes.Node) -> Optional[str]:
    if node.tag == "tag:yaml.org,2002:null":
        return None
    return section.parse(key, node, str)
