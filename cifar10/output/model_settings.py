"""The model of an output folder: training continues it or is refused, other modes take it.

So evaluation, prediction and export need no flags of the model.
"""

import itertools
import posixpath
import typing
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, DamagedError
from cifar10.host.console import one_line
from cifar10.output import run_file
from cifar10.output.run_file import Run, is_a
from cifar10.schema import CLASS_NAMES, STRETCH
from cifar10.settings import flag_name, settings_of

# The settings that decide which variables the checkpoints hold, beside those of the model's shape.
_SETTINGS = ("model", "batch_norm", "batch_norm_epsilon", "optimizer", "lookahead_steps")
# Values with the same variables: training may change from one to the other.
_SAME = {"nesterov": "momentum"}


def check_same(config: TrainConfig, class_names: Sequence[str]) -> None:
    """Checks that training may continue in the output folder, before it changes anything there.

    Raises:
      ConfigError: the folder has checkpoints of another model or of other classes.
      DamagedError: run.json is damaged.
    """
    place = config.output_place
    run = run_file.read(place)
    if not run.settings or not tf.io.gfile.glob(tf.io.gfile.join(place, "model.ckpt-*")):
        return
    _check_classes(place, run.class_names, class_names)
    # Files from versions without lookahead do not have this setting.
    noted = {"lookahead_steps": 0, **run.settings}
    for name, value in _settings_of(config).items():
        before = noted.get(name)
        if not _is_same(value, before):
            raise ConfigError(
                f"{place} holds a model with {flag_name(name)}={before}, "
                f"this run has {value}; say {flag_name(name)}={before} to continue it, or "
                "name another --output-dir"
            )


def write(config: TrainConfig, class_names: Sequence[str], **entries: Any) -> None:
    """Notes the model that is about to be trained, and other entries of `Run`, in run.json."""
    run_file.update(
        config.output_place,
        settings=_settings_of(config),
        class_names=list(class_names),
        **entries,
    )


def check_classes(config: TrainConfig, class_names: Sequence[str]) -> None:
    """Checks that records have the classes of the checkpoint; where none are known, does nothing.

    Args:
      config: the settings, with the checkpoint or the output folder.
      class_names: the classes of the records, in the order of the labels.

    Raises:
      ConfigError: a label stands for another class.
      DamagedError: run.json is damaged.
    """
    place, run = _of_checkpoint(config)
    if run.settings:
        _check_classes(place, run.class_names, class_names)


def _check_classes(place: str, before: Sequence[str], now: Sequence[str]) -> None:
    """Raises ConfigError if a label does not stand for the class for which it stood before."""
    if list(before) == list(now):
        return
    what = f"of {len(before)} classes, these records have {len(now)}"
    for label, (old, new) in enumerate(zip(before, now)):
        if old != new:
            what = f"for which label {label} is {old!r}; in these records it is {new!r}"
            break
    raise ConfigError(
        f"{place} holds a model {what}; name the records that it was trained on, or another "
        "--output-dir"
    )


def apply(config: TrainConfig) -> tuple[TrainConfig, tuple[str, ...]]:
    """Returns `config` with the settings of the checkpoint's run, and its class names.

    Where they are unknown, returns `config` unchanged and the class names of CIFAR-10.

    Raises:
      ConfigError: a flag contradicts them.
      DamagedError: run.json is damaged.
    """
    place, run = _of_checkpoint(config)
    if not run.settings:
        return config, CLASS_NAMES
    for name, value in run.settings.items():
        fault = _fault_of(name, value)
        if fault:
            raise DamagedError(posixpath.join(place, run_file.NAME), fault)
        if config.is_set(name) and getattr(config, name) != value:
            raise ConfigError(
                f"{place} holds a model with {flag_name(name)}={value}, got "
                f"{getattr(config, name)}; leave {flag_name(name)} out"
            )
    return config.with_settings(**run.settings), tuple(run.class_names)


def resize_of(config: TrainConfig) -> str:
    """Returns how images of other sizes are brought to 32x32: as those of training were.

    Images of CIFAR-10 come at that size; a model of those gets other images stretched.

    Raises:
      DamagedError: run.json is damaged.
    """
    return _of_checkpoint(config)[1].resize or STRETCH


def _settings_of(config: TrainConfig) -> dict[str, Any]:
    """Returns the settings that decide which variables the checkpoints hold."""
    settings = {name: getattr(config, name) for name in _SETTINGS}
    return {**settings, **models.find(config.model).shape(config)}


def _fault_of(name: str, value: Any) -> Optional[str]:
    """Returns why this is no setting of a network, since it is applied; None if it is one."""
    shapes = (models.find(one).shape(TrainConfig()) for one in models.NAMES)
    if name not in {*_SETTINGS, *itertools.chain(*shapes)}:
        return f"{name!r} is no setting of a network"
    if not is_a(value, typing.get_type_hints(TrainConfig)[name]):
        return f"{name} has another type"
    try:
        settings_of(TrainConfig)[name].check(value, name)
    except ConfigError as error:
        return one_line(str(error))
    return None


def _is_same(one: Any, other: Any) -> bool:
    return bool(_SAME.get(str(one), one) == _SAME.get(str(other), other))


def _of_checkpoint(config: TrainConfig) -> tuple[str, Run]:
    """Returns the run of --checkpoint, or else of the output folder, and its folder."""
    given = config.checkpoint_place
    folders = [] if given is None else _folders_of(given)
    return _first_of([*folders, config.output_place])


def _folders_of(checkpoint: str) -> list[str]:
    """Returns the folder of a checkpoint, and that folder's parent."""
    folder = posixpath.dirname(checkpoint)
    return [folder, posixpath.dirname(folder)]


def _first_of(folders: Iterable[str]) -> tuple[str, Run]:
    """Returns the first of these folders that knows a model, and its run; else an empty run."""
    for folder in folders:
        run = run_file.read(folder)
        if run.settings:
            return folder, run
    return "", Run()
