"""--init-checkpoint: training that starts from the weights of a checkpoint, at step 0.

Only the model's weights and moving statistics are taken. Steps, images seen, the optimizer's slots
and averages begin anew, and the channels' means are those of the new data.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.output import checkpoints, model_settings
from cifar10.output.checkpoints import fault_of
from cifar10.step.model_fn import variable_shapes

_MODEL = "model/"  # how the names of a model's variables begin
_SHOWN = 3  # variables in a message


class Start(NamedTuple):
    """The weights that training starts from.

    Attributes:
      path: the checkpoint's path without the endings of its files.
      step: the global step at which it was saved.
      values: arrays by the variable's name.
      not_loaded: what is wrong with each variable of the last layer that starts anew, by name.
    """

    path: str
    step: int
    values: Mapping[str, Any]
    not_loaded: Mapping[str, str]

    def describe(self) -> str:
        """Returns the line that says what is loaded, and what is not."""
        count = len(self.values)
        line = f"starting from {self.path} (step {self.step:,}): "
        if not self.not_loaded:
            return f"{line}all {count} weights and statistics; steps and optimizer start anew"
        fresh = ", ".join(f"{name} ({why})" for name, why in self.not_loaded.items())
        return (
            f"{line}{count} weights and statistics, but not the last layer, which starts anew like "
            f"steps and optimizer: {fresh}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the entry of run.json and result.json."""
        return {
            "path": self.path,
            "step": self.step,
            "loaded": len(self.values),
            "not_loaded": list(self.not_loaded),
        }


def read(config: TrainConfig, num_classes: int) -> Optional[Start]:
    """Reads the weights that --init-checkpoint names; None without that flag.

    Args:
      config: the settings.
      num_classes: the number of classes of the records.

    Raises:
      ConfigError: there is no such checkpoint, it is damaged, or it is of another model.
      DamagedError: the best.json of its folder is damaged.
      UnreadableError: a file of it cannot be read.
    """
    if config.init_checkpoint is None:
        return None
    path = _find(config.place(config.init_checkpoint))
    fault = fault_of(path)
    if fault:
        raise ConfigError(
            f"--init-checkpoint {path} is damaged ({fault}); restore its files, or name another one"
        )
    reader = tf.train.NewCheckpointReader(path)
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    # Not what an optimizer adds for a variable, whose name begins with the variable's.
    there = {
        name for name in shapes if name.startswith(_MODEL) and name.rpartition("/")[0] not in shapes
    }
    if not there:
        raise ConfigError(
            f"--init-checkpoint {path} is not of this program: it has no variable {_MODEL}..., but "
            f"{_some(sorted(shapes)) or 'none at all'}; name one that cifar10_main.py has saved"
        )
    own = variable_shapes(config, num_classes)
    wrong = {name: why for name in own if (why := _difference(own[name], shapes.get(name)))}
    wrong.update({name: "this model has none" for name in sorted(there - own.keys())})
    last = list(own)[-1].rpartition("/")[0] + "/"  # how the last layer's variables begin
    others = [f"{name}: {why}" for name, why in sorted(wrong.items()) if not name.startswith(last)]
    if others:
        known = model_settings.other_flags(config, path)  # from the settings beside it
        way_out = (
            f"it was trained with {known}" if known else "give the flags that it was trained with"
        )
        raise ConfigError(
            f"--init-checkpoint {path} is of another model ({_some(others)}); {way_out}"
        )
    values = {name: reader.get_tensor(name) for name in own if name not in wrong}
    step = int(reader.get_tensor("global_step")) if "global_step" in shapes else 0
    return Start(path, step, values, wrong)


def describe_unused(config: TrainConfig, own: str) -> Optional[str]:
    """Returns the line of a run that continues from its own checkpoint; None without the flag.

    Args:
      config: the settings.
      own: the path of the checkpoint from which the run continues.
    """
    if config.init_checkpoint is None:
        return None
    return (
        f"note: --init-checkpoint {config.init_checkpoint} is not read: this run continues from "
        f"its own {own}; name another --output-dir to start anew"
    )


def _find(place: str) -> str:
    """Returns the checkpoint at a path: the path itself, or a folder's best or else its newest.

    Raises:
      ConfigError: there is none.
    """
    if checkpoints.exists(place):
        return place
    if not tf.io.gfile.isdir(place):
        raise ConfigError(
            f"--init-checkpoint {place} does not exist; name a folder with checkpoints, or a "
            "checkpoint without its ending, for example output/best/model.ckpt-80000"
        )
    kept = checkpoints.best(place)
    found = kept.path if kept else checkpoints.latest(place) or _newest(place)
    if found is None:
        raise ConfigError(
            f"--init-checkpoint {place} has no checkpoint; name another folder, such as a run's "
            "--output-dir"
        )
    return str(found)


def _newest(folder: str) -> Optional[str]:
    """Returns the checkpoint of the highest step in a folder whose file `checkpoint` is missing."""
    found = (re.fullmatch(r"(.*-(\d+))\.index", name) for name in tf.io.gfile.listdir(folder))
    named = sorted((int(match[2]), match[1]) for match in found if match)
    return str(tf.io.gfile.join(folder, named[-1][1])) if named else None


def _difference(here: tuple[int, ...], there: Optional[tuple[int, ...]]) -> Optional[str]:
    """Describes how a variable's shape differs from that in the checkpoint; None if it does not."""
    if there is None:
        return "the checkpoint has none"
    before, now = ("x".join(map(str, shape)) or "a number" for shape in (there, here))
    return f"{before} there, {now} here" if there != here else None


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")
