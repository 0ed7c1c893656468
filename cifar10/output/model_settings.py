"""model.json: the settings of the model in an output folder, and the records that it began with.

Training writes the settings that its checkpoints depend on. A run that continues must have the same
or equivalent settings. Evaluation, prediction and export read them from the file, so that the user
does not have to repeat them.
"""

import itertools
import posixpath
import typing
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, DamagedError
from cifar10.host import files
from cifar10.host.console import one_line
from cifar10.host.files import read_json, write_json
from cifar10.output import checkpoints
from cifar10.schema import CLASS_NAMES, RESIZES, STRETCH
from cifar10.settings import flag_name, settings_of

_NAME = "model.json"
_START, _RECORDS, _SEED = "init_checkpoint", "records", "seed"

_SETTINGS = ("model", "batch_norm", "batch_norm_epsilon", "optimizer", "lookahead_steps")
# Those that decide how the network was trained, or what it computes, but not its variables.
_NOT_OF_NETWORK = ("optimizer", "lookahead_steps", "batch_norm_epsilon")
# Values with the same variables: training may change from one to the other.
_SAME = {"nesterov": "momentum", "sync": "tower"}


def write(
    config: TrainConfig,
    class_names: tuple[str, ...],
    start: Optional[dict[str, Any]] = None,
    *,
    resize: Optional[str] = None,
    records: Optional[Mapping[str, Sequence[str]]] = None,
    seed: Optional[int] = None,
) -> None:
    """Writes the settings and class names of the model that is about to be trained.

    Args:
      config: the settings.
      class_names: the classes in the order of the labels.
      start: where the run's first weights come from, by --init-checkpoint; None: they are random.
      resize: how data_prep resized the images, one of RESIZES; None: it did not.
      records: what identifies the files that the run began with, by split; None: it is unknown.
      seed: the --seed that the run began with; None: it is unknown.

    Raises:
      ConfigError: the output folder has checkpoints of another model or of other classes.
    """
    settings, place = _settings_of(config), config.output_place
    path = tf.io.gfile.join(place, _NAME)
    if files.exists(path) and checkpoints.has_any(place):
        found = _read(path)
        _check_same(place, found["class_names"], class_names)
        # Files from versions without lookahead do not have this setting.
        noted = {"lookahead_steps": 0, **found["settings"]}
        for name, value in settings.items():
            before = noted.get(name)
            if _SAME.get(value, value) != _SAME.get(str(before), before):
                raise ConfigError(
                    f"{place} holds a model with {flag_name(name)}={before}, "
                    f"this run has {value}; say {flag_name(name)}={before} to continue it, or "
                    "name another --output-dir"
                )
    note = {"settings": settings, "class_names": class_names, "resize": resize}
    write_json(path, {**note, _START: start, _RECORDS: records, _SEED: seed})


def check_classes(config: TrainConfig, class_names: Sequence[str]) -> None:
    """Checks that records have the classes of the checkpoint; without model.json, does nothing.

    Args:
      config: the settings, with the checkpoint or the output folder.
      class_names: the classes of the records, in the order of the labels.

    Raises:
      ConfigError: a label stands for another class.
      DamagedError: model.json is damaged.
      UnreadableError: model.json cannot be read.
    """
    path = _note_of_checkpoint(config)
    if path is not None:
        _check_same(posixpath.dirname(path), _read(path)["class_names"], class_names)


def _check_same(place: str, before: Sequence[str], now: Sequence[str]) -> None:
    """Raises ConfigError if a label does not stand for the class for which it stood before."""
    if len(before) != len(now):
        raise ConfigError(
            f"{place} holds a model of {len(before)} classes, these records have {len(now)}; name "
            "the records that it was trained on, or another --output-dir"
        )
    changed = [(old, new) for old, new in zip(before, now) if old != new]
    if changed:
        label = list(before).index(changed[0][0])
        raise ConfigError(
            f"{place} holds a model for which label {label} is {changed[0][0]!r}; in these records "
            f"it is {changed[0][1]!r}; name the records that it was trained on, or another "
            "--output-dir"
        )


def started_from(config: TrainConfig) -> Optional[dict[str, Any]]:
    """Returns where the run's first weights came from; None if they were random."""
    start = _own(config).get(_START)
    return dict(start) if start else None


def began_with(config: TrainConfig) -> Optional[dict[str, list[str]]]:
    """Returns what identifies the files that the run began with, by split; None if it is unknown.

    Files of versions that did not note it do not have it.
    """
    return _own(config).get(_RECORDS)


def began_with_seed(config: TrainConfig) -> Optional[int]:
    """Returns the --seed that the run began with; None if an earlier version did not note it."""
    return _own(config).get(_SEED)


def _own(config: TrainConfig) -> dict[str, Any]:
    """Returns the content of the output folder's model.json; without that file, nothing."""
    path = tf.io.gfile.join(config.output_place, _NAME)
    return _read(path) if files.exists(path) else {}


def other_flags(config: TrainConfig, checkpoint: str) -> str:
    """Returns the flags of a checkpoint's network that differ from these; empty if none is known.

    Args:
      config: the settings.
      checkpoint: the checkpoint's path; model.json may be in its folder or in that folder's parent.
    """
    path = _note_in(_folders_of(checkpoint))
    if path is None:
        return ""
    own, there = _settings_of(config), _read(path)["settings"]
    return " ".join(
        f"{flag_name(name)}={value}"
        for name, value in there.items()
        if name not in _NOT_OF_NETWORK
        and _SAME.get(str(value), value) != _SAME.get(str(own.get(name)), own.get(name))
    )


def _settings_of(config: TrainConfig) -> dict[str, Any]:
    settings = {name: getattr(config, name) for name in _SETTINGS}
    return {**settings, **models.find(config.model).shape(config)}


def apply(config: TrainConfig) -> tuple[TrainConfig, tuple[str, ...]]:
    """Returns `config` with the settings of model.json, and its class names.

    Without that file, returns `config` unchanged and the class names of CIFAR-10.

    Raises:
      ConfigError: a flag contradicts the file.
    """
    path = _note_of_checkpoint(config)
    if path is None:
        return config, CLASS_NAMES
    note = _read(path)
    for name, value in note["settings"].items():
        if config.is_set(name) and getattr(config, name) != value:
            raise ConfigError(
                f"{path} says {flag_name(name)}={value}, got "
                f"{getattr(config, name)}; leave {flag_name(name)} out"
            )
    return config.with_settings(**note["settings"]), tuple(note["class_names"])


def resize_of(config: TrainConfig) -> str:
    """Returns how images of other sizes are brought to 32x32: as those of training were.

    Images of CIFAR-10 come at that size; a model of those gets other images stretched.

    Raises:
      DamagedError: model.json is damaged.
      UnreadableError: model.json cannot be read.
    """
    path = _note_of_checkpoint(config)
    return STRETCH if path is None else _read(path).get("resize") or STRETCH


def _read(path: str) -> dict[str, Any]:
    """Returns the content of a model.json.

    Raises:
      DamagedError: the file is damaged.
      UnreadableError: the file cannot be read.
    """
    note = read_json(path)
    settings = note.get("settings") if isinstance(note, dict) else None
    if not isinstance(settings, dict):
        raise DamagedError(path, "it has no settings")
    shapes = (models.find(one).shape(TrainConfig()) for one in models.NAMES)
    known = {*_SETTINGS, *itertools.chain(*shapes)}
    for name, value in settings.items():
        fault = _fault_of_setting(name, value, known)
        if fault:
            raise DamagedError(path, fault)
    names = note.get("class_names")
    if not isinstance(names, list) or not names or {*map(type, names)} != {str}:
        raise DamagedError(path, "it has no class names")
    if note.get("resize") not in (None, *RESIZES):
        raise DamagedError(path, "its resize is unknown")
    if not _are_records(note.get(_RECORDS)):
        raise DamagedError(path, "its records are no names")
    if type(note.get(_SEED)) not in (int, type(None)):
        raise DamagedError(path, "its seed is no number")
    return dict(note)


def _are_records(value: Any) -> bool:
    """Returns whether a value is what `began_with` returns."""
    if value is None:
        return True
    return isinstance(value, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names)
        for names in value.values()
    )


def _fault_of_setting(name: str, value: Any, known: Container[str]) -> Optional[str]:
    """Returns why this is no setting of a network, of those known; None if it is one."""
    if name not in known:
        return f"{name!r} is no setting of a network"
    kind = typing.get_type_hints(TrainConfig)[name]
    kinds = typing.get_args(kind) or (kind,)
    if type(value) not in kinds and not (type(value) is int and float in kinds):
        return f"{name} has another type"
    try:
        settings_of(TrainConfig)[name].check(value, name)
    except ConfigError as error:
        return one_line(str(error))
    return None


def _note_of_checkpoint(config: TrainConfig) -> Optional[str]:
    """Returns the path of model.json; None if there is none.

    It may be in the folder of --checkpoint, in that folder's parent or in the output folder.
    """
    folders = [config.output_place]
    if config.checkpoint is not None:
        folders = [*_folders_of(config.place(config.checkpoint)), *folders]
    return _note_in(folders)


def _folders_of(checkpoint: str) -> list[str]:
    """Returns the folder of a checkpoint, and that folder's parent."""
    folder = posixpath.dirname(checkpoint)
    return [folder, posixpath.dirname(folder)]


def _note_in(folders: Iterable[str]) -> Optional[str]:
    """Returns the path of the first model.json in one of the folders; None if there is none."""
    paths = [str(tf.io.gfile.join(folder, _NAME)) for folder in folders]
    return next((path for path in paths if files.exists(path)), None)
