"""The values that a new model starts from: weights of another run, or computed from the data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.errors import ConfigError
from cifar10.host.process import log
from cifar10.input import pipeline
from cifar10.output import checkpoints
from cifar10.run.job import Job
from cifar10.step.model_fn import variable_shapes


def with_initial_weights(job: Job, is_new: bool) -> Job:
    """Adds the values that a model starts from: of --init-checkpoint, or from the data.

    Args:
      job: the job that is about to be trained.
      is_new: whether it starts without a checkpoint; otherwise --init-checkpoint is not read.

    Raises:
      ConfigError: --init-checkpoint cannot be used.
    """
    config = job.config
    values: Mapping[str, Any] = {}
    if config.init_checkpoint is not None and is_new:
        classes = job.params.num_classes
        shapes = variable_shapes(config, classes)
        values = _read_weights(config.resolve(config.init_checkpoint), shapes, classes)
    values = values or models.find(config.model).first_values(
        lambda count: pipeline.sample_images(job.records, config.seed, count)
    )
    return dataclasses.replace(job, params=dataclasses.replace(job.params, values_from_data=values))


def _read_weights(
    location: str, here: Mapping[str, tuple[int, ...]], num_classes: int
) -> dict[str, Any]:
    """Reads the model's weights and statistics that --init-checkpoint names, no optimizer's slots.

    What has one output per class starts anew where the checkpoint is of another number of classes:
    the last layer, and those of auxiliary heads. A line says what is taken.

    Args:
      location: the path of a checkpoint, or of a folder, whose best or else latest one is taken.
      here: the shapes of this model's weights and statistics by name, in the order of its layers.
      num_classes: the number of classes of this run.

    Returns:
      Arrays by the variable's name.

    Raises:
      ConfigError: there is no such checkpoint, it is damaged, or it is of another model.
      DamagedError: the best.json of its folder is damaged.
    """
    path = location if checkpoints.exists(location) else checkpoints.best_or_newest(location)
    fault = checkpoints.fault_of(path) if path else "no checkpoint, and no folder with any"
    if fault or not path:
        raise ConfigError(
            f"--init-checkpoint {path or location} cannot be used ({fault}); name a run's "
            "--output-dir, or a checkpoint without its ending, such as output/best/model.ckpt-80000"
        )
    reader = tf.train.NewCheckpointReader(path)
    there = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    # Not what an optimizer adds for a variable, whose name begins with the variable's.
    known = [
        name for name in there if name.startswith("model/") and name.rpartition("/")[0] not in there
    ]
    for name in (*here, *known):
        old, new = there.get(name), here.get(name)
        # A hidden layer of that width is none: the layer after it has other inputs, too.
        has_output_per_class = old and new == (*old[:-1], num_classes)
        if old != new and not has_output_per_class:
            raise ConfigError(
                f"--init-checkpoint {path} is of another model: {name} has the shape {old} there, "
                f"{new} here (None: there is none); give the flags that it was trained with, which "
                "its run.json or result.json names"
            )
    values = {name: reader.get_tensor(name) for name in here if here[name] == there.get(name)}
    anew = ", ".join(name for name in here if name not in values)
    log(f"{len(values)} weights and statistics are from {path}{anew and f', but not {anew}'}")
    return values
