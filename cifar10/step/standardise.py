"""Standardises images by the mean and standard deviation of the training images' channels.

Both are variables, saved with the weights, which belong to them: evaluation, prediction and export
need only the checkpoint, and a run that continues on other records standardises these likewise.
"""

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH

_NAMES = ("channel_mean", "channel_deviation")
# A function: uint8 [N, 32, 32, 3] -> float32 [N, 32, 32, 3].
Standardiser = Callable[[tf.Tensor], tf.Tensor]


def standardiser(
    values: Sequence[Sequence[float]], device: str, task_device: str = ""
) -> Standardiser:
    """Makes the function by which each tower standardises its images.

    If the variables are on another machine, it uses local copies of them, which each session makes
    when it begins, so that no step fetches them. In-graph, the master sends them to the other
    machines.

    Args:
      values: the mean and the deviation of each channel, by which a new run begins.
      device: the device of both variables.
      task_device: this process's job and task; empty for a process that trains alone.
    """
    with tf.variable_scope("input", reuse=tf.AUTO_REUSE), tf.device(device):
        used = [
            _variable(name, tf.constant_initializer(value), [CHANNELS])
            for name, value in zip(_NAMES, values)
        ]
    if not device.startswith(task_device):
        with tf.variable_scope("input"), tf.device(f"{task_device}/device:CPU:0"):
            local = [tf.GraphKeys.LOCAL_VARIABLES]
            used = [
                _variable(f"own_{name}", variable.read_value(), collections=local)
                for name, variable in zip(_NAMES, used)
            ]
    with tf.device(used[0].device):  # A GPU would gain nothing by computing these numbers itself.
        return by(*(one.read_value() for one in used))


def _variable(name: str, initializer: Any, shape: Any = None, collections: Any = None) -> Any:
    return tf.get_variable(
        name,
        shape,
        tf.float32,
        initializer,
        trainable=False,
        use_resource=True,
        collections=collections,
    )


def by(mean: tf.Tensor, deviation: tf.Tensor) -> Standardiser:
    """Makes a function by which each tower standardises its own part of the batch.

    Args:
      mean: the mean of each channel, float32 [3].
      deviation: the standard deviation of each channel, float32 [3].
    """
    # Whole rows of 32 x 3 numbers: broadcasting over three numbers takes five times as long.
    offset, factor = (tf.tile(value, [WIDTH]) for value in (mean, 1.0 / deviation))

    def standardise(images: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(images, [-1, WIDTH * CHANNELS])
        values = (tf.cast(rows, tf.float32) - offset) * factor
        return tf.reshape(values, [-1, HEIGHT, WIDTH, CHANNELS])

    return standardise
