"""Which model an output folder holds: model.json, beside the checkpoints.

Training notes what decides its checkpoints' variables. When it continues, the settings have to be
the same; evaluation, prediction and export take them from the note, so nobody has to repeat them.
"""

import dataclasses
import posixpath
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host.files import read_json, write_json
from cifar10.output import checkpoints
from cifar10.schema import CLASS_NAMES
from cifar10.settings import flag_name

_NAME = "model.json"

_SETTINGS = ("model", "batch_norm", "batch_norm_epsilon", "optimizer", "lookahead_steps")
# Settings with the same variables: training may change from one to the other.
_SAME = {"nesterov": "momentum", "sync": "tower"}


def write(config: TrainConfig, class_names: tuple[str, ...]) -> None:
    """Notes the model that is about to be trained, or checks that it is the noted one.

    Raises:
      ConfigError: there are checkpoints of another model.
    """
    settings = {name: getattr(config, name) for name in _SETTINGS}
    settings.update(models.find(config.model).shape(config))
    place = config.output_place
    path = tf.io.gfile.join(place, _NAME)
    if tf.io.gfile.exists(path) and (checkpoints.latest(place) or checkpoints.best(place)):
        # Notes that were written before lookahead existed do not have it.
        noted = {"lookahead_steps": 0, **read_json(path)["settings"]}
        for name, value in settings.items():
            if _SAME.get(value, value) != _SAME.get(noted[name], noted[name]):
                raise ConfigError(
                    f"{place} holds a model with {flag_name(name)}={noted[name]}, "
                    f"this run has {value}; say {flag_name(name)}={noted[name]} to continue it, or "
                    "name another --output-dir"
                )
    write_json(path, {"settings": settings, "class_names": class_names})


def apply(config: TrainConfig) -> tuple[TrainConfig, tuple[str, ...]]:
    """Returns `config` with the noted settings, and the noted class names.

    Raises:
      ConfigError: a flag contradicts the note.
    """
    path = _note_of_checkpoint(config)
    if path is None:
        return config, CLASS_NAMES
    note = read_json(path)
    for name, value in note["settings"].items():
        if config.is_set(name) and getattr(config, name) != value:
            raise ConfigError(
                f"{path} says {flag_name(name)}={value}, got "
                f"{getattr(config, name)}; leave {flag_name(name)} out"
            )
    return dataclasses.replace(config, **note["settings"]), tuple(note["class_names"])


def _note_of_checkpoint(config: TrainConfig) -> Optional[str]:
    """The note beside --checkpoint, or above its best/; else that of the output folder."""
    folders = [config.output_place]
    if config.checkpoint is not None:
        folder = posixpath.dirname(config.place(config.checkpoint))
        folders = [folder, posixpath.dirname(folder), *folders]
    paths = [str(tf.io.gfile.join(folder, _NAME)) for folder in folders]
    return next((path for path in paths if tf.io.gfile.exists(path)), None)
