"""The model of an output folder: training continues it or is refused, other modes take it.

So evaluation, prediction and export need no flags of the model.
"""

import dataclasses
import itertools
import posixpath
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.fields import REGISTRIES
from cifar10.config.settings import flag_name, settings_of
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, DamagedError
from cifar10.host.process import one_line
from cifar10.output import run_file
from cifar10.schema import CLASS_NAMES, STRETCH

# The settings that decide which variables the checkpoints hold, beside those of the model's shape.
_SETTINGS = ("model", "batch_norm", "batch_norm_epsilon", "optimizer", "lookahead_steps")
# These optimizers have the same variables: training may change from one to the other.
_SAME = {"momentum", "nesterov"}


def check_same(config: TrainConfig, class_names: Sequence[str]) -> None:
    """Checks that training may continue in the output folder, before it changes anything there.

    Raises:
      ConfigError: the folder has checkpoints of another model or of other classes.
      DamagedError: run.json is damaged.
    """
    folder = config.output_path
    run = _read(folder)
    if not run.settings or not tf.io.gfile.glob(tf.io.gfile.join(folder, "model.ckpt-*")):
        return
    _check_classes(folder, run.class_names, class_names)
    for name, value in _settings_of(config).items():
        before = run.settings.get(name)
        if before != value and {str(before), str(value)} != _SAME:
            its = f"{flag_name(name)}={before}"
            way_out = f"say {its} to continue it, or name another --output-dir"
            raise ConfigError(f"{folder} holds a model with {its}, this run has {value}; {way_out}")


def write(config: TrainConfig, class_names: Sequence[str], **entries: Any) -> None:
    """Records the model that is about to be trained, and other entries of `Run`, in run.json."""
    model = {"settings": _settings_of(config), "class_names": list(class_names)}
    run_file.update(config.output_path, **model, **entries)


def check_classes(config: TrainConfig, class_names: Sequence[str]) -> None:
    """Checks that records have the classes of the checkpoint; where none are known, does nothing.

    Args:
      config: the settings, with the checkpoint or the output folder.
      class_names: the classes of the records, in the order of the labels.

    Raises:
      ConfigError: a label stands for another class.
      DamagedError: run.json is damaged.
    """
    folder, run = _of_checkpoint(config)
    if run.settings:
        _check_classes(folder, run.class_names, class_names)


def _check_classes(folder: str, before: Sequence[str], now: Sequence[str]) -> None:
    """Raises ConfigError if a label does not stand for the class for which it stood before."""
    for label, (old, new) in enumerate(itertools.zip_longest(before, now, fillvalue="no class")):
        if old != new:
            both = f"label {label} is {old!r}; in these records it is {new!r}"
            way_out = "name the records that it was trained on, or another --output-dir"
            raise ConfigError(f"{folder} holds a model for which {both}; {way_out}")


def apply(config: TrainConfig) -> tuple[TrainConfig, tuple[str, ...]]:
    """Returns `config` with the settings of the checkpoint's run, and its class names.

    Where they are unknown, returns `config` unchanged and the class names of CIFAR-10.

    Raises:
      ConfigError: a flag contradicts them.
      DamagedError: run.json is damaged.
    """
    folder, run = _of_checkpoint(config)
    if not run.settings:
        return config, CLASS_NAMES
    for what, registry in REGISTRIES.items():
        if isinstance(name := run.settings[what], str) and name not in registry.names:
            fault = f"the {what} {one_line(name)}, which this program lacks"
            example = f"such as `python own.py --mode {config.mode}`"
            way_out = f"start the script that registers it instead, {example}"
            raise ConfigError(f"{folder} was trained with {fault}; {way_out}")
    shapes = (models.find(model).shape(config) for model in models.NAMES)
    known, values = {*_SETTINGS, *itertools.chain(*shapes)}, {}
    for name, recorded in run.settings.items():
        try:
            if name not in known:
                raise ConfigError(f"{name!r} is no setting of a network")
            value = values[name] = settings_of(type(config))[name].read(str(recorded), name)
        except ConfigError as error:
            path = posixpath.join(folder, run_file.NAME)
            raise DamagedError(path, one_line(str(error))) from error
        if config.is_set(name) and getattr(config, name) != value:
            both = f"{flag_name(name)}={value}, got {getattr(config, name)}"
            raise ConfigError(f"{folder} holds a model with {both}; leave {flag_name(name)} out")
    return dataclasses.replace(config, **values), tuple(run.class_names)


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


def _of_checkpoint(config: TrainConfig) -> tuple[str, run_file.Run]:
    """Returns the first folder that knows a model, and its run; else an empty run.

    It looks beside --checkpoint, above it for one in best/, and in the output folder.
    """
    beside = posixpath.dirname(config.checkpoint_path or "")
    above = [] if config.checkpoint is None else [beside, posixpath.dirname(beside)]
    for folder in (*above, config.output_path):
        run = _read(folder)
        if run.settings:
            return folder, run
    return "", run_file.Run()


def _read(folder: str) -> run_file.Run:
    """Reads the run.json of a folder, whose settings are none or those of this version."""
    run = run_file.read(folder)
    missing = ", ".join(name for name in _SETTINGS if name not in run.settings)
    if run.settings and missing:
        path = posixpath.join(folder, run_file.NAME)
        raise run_file.of_another_version(path, f"its settings have no {missing}")
    return run
