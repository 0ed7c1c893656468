"""--init-checkpoint: training that starts from the weights of a checkpoint, at step 0.

Only the model's weights and moving statistics are taken. Steps, images seen, the optimizer's slots
and averages begin anew, and the channels' means are those of the new data.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError
from cifar10.output import checkpoints

_MODEL = "model/"  # how the names of a model's variables begin


class Start(NamedTuple):
    """The weights that training starts from.

    Attributes:
      path: the checkpoint's path without the endings of its files.
      step: the global step at which it was saved.
      values: arrays by the variable's name.
      not_loaded: the variables of the last layer that start anew, since theirs have other shapes.
    """

    path: str
    step: int
    values: Mapping[str, Any]
    not_loaded: list[str]

    def describe(self) -> str:
        """Returns the line that says what is loaded, and what is not."""
        anew = ", ".join(["steps and optimizer", *self.not_loaded])
        return (
            f"starting from {self.path} (step {self.step:,}): {len(self.values)} weights and "
            f"statistics; {anew} start anew"
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the entry of run.json and result.json."""
        entries = {"path": self.path, "step": self.step, "loaded": len(self.values)}
        return {**entries, "not_loaded": self.not_loaded}


def read(place: str, here: Mapping[str, tuple[int, ...]]) -> Start:
    """Reads the weights that --init-checkpoint names.

    Args:
      place: the path of a checkpoint, or of a folder, whose best or else latest one is taken.
      here: the shapes of this model's weights and statistics by name, in the order of its layers.

    Raises:
      ConfigError: there is no such checkpoint, it is damaged, or it is of another model.
      DamagedError: the best.json of its folder is damaged.
    """
    path = place
    if not checkpoints.exists(place):
        kept = checkpoints.best(place)
        path = kept.path if kept else checkpoints.latest(place) or ""
    if not path:
        raise ConfigError(
            f"--init-checkpoint {place} is no checkpoint, and no folder with any; name a run's "
            "--output-dir, or a checkpoint without its ending, such as output/best/model.ckpt-80000"
        )
    fault = checkpoints.fault_of(path)
    if fault:
        raise ConfigError(
            f"--init-checkpoint {path} is damaged ({fault}); restore its files, or name another one"
        )
    reader = tf.train.NewCheckpointReader(path)
    there = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    # Not what an optimizer adds for a variable, whose name begins with the variable's.
    known = [one for one in there if one.startswith(_MODEL) and one.rpartition("/")[0] not in there]
    last = list(here)[-1].rpartition("/")[0] + "/"  # how the last layer's variables begin
    unlike = [
        name for name in {**here, **dict.fromkeys(known)} if here.get(name) != there.get(name)
    ]
    others = [name for name in unlike if not name.startswith(last)]
    if others:
        name = others[0]
        raise ConfigError(
            f"--init-checkpoint {path} is of another model: {name} has the shape "
            f"{there.get(name)} there, {here.get(name)} here (None: there is none); give the flags "
            "that it was trained with, which its run.json or result.json names"
        )
    values = {name: reader.get_tensor(name) for name in here if name not in unlike}
    step = int(reader.get_tensor("global_step")) if "global_step" in there else 0
    return Start(path, step, values, [name for name in unlike if name in here])
