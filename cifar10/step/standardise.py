"""Standardises images by the mean and standard deviation of the training images' channels."""

from typing import Callable

import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.step.params import ModelParams


def channel_variables(params: ModelParams, device: str) -> tuple[tf.Variable, tf.Variable]:
    """Returns variables of the training images' channel means and deviations, float32 [3] each.

    They are saved with the weights, which belong to them: evaluation, prediction and export need
    only the checkpoint, and a run that continues on other records standardises these likewise.

    Args:
      params: the initial values of both variables, at the beginning of a run.
      device: the device of both variables.
    """
    with tf.variable_scope("input", reuse=tf.AUTO_REUSE), tf.device(device):
        mean, deviation = (
            tf.get_variable(
                name,
                [CHANNELS],
                tf.float32,
                tf.constant_initializer(values),
                trainable=False,
                use_resource=True,
            )
            for name, values in (
                ("channel_mean", params.channel_mean),
                ("channel_deviation", params.channel_deviation),
            )
        )
    return mean, deviation


def training_channels(params: ModelParams) -> tuple[tf.Variable, tf.Variable]:
    """Returns the variables by which a training step standardises images, float32 [3] each.

    If `channel_variables` are on another machine, they are local copies of them, which each session
    makes when it begins, so that no step fetches them. In-graph, the master sends them to the other
    machines.

    Args:
      params: the initial values, and the devices of this process and of the variables.
    """
    task, home = params.place.task_device, params.place.variable_devices[0]
    saved = channel_variables(params, home)
    if home.startswith(task):
        return saved
    with tf.variable_scope("input"), tf.device(f"{task}/device:CPU:0"):
        mean, deviation = (
            tf.get_variable(
                f"own_{name}",
                initializer=variable.read_value(),
                trainable=False,
                use_resource=True,
                collections=[tf.GraphKeys.LOCAL_VARIABLES],
            )
            for name, variable in zip(("channel_mean", "channel_deviation"), saved)
        )
    return mean, deviation


def standardiser(mean: tf.Tensor, deviation: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    """Makes a function by which each tower standardises its own part of the batch.

    Args:
      mean: the mean of each channel, float32 [3].
      deviation: the standard deviation of each channel, float32 [3].

    Returns:
      A function: uint8 [N, 32, 32, 3] -> float32 [N, 32, 32, 3].
    """
    # Whole rows of 32 x 3 numbers: broadcasting over three numbers takes five times as long.
    offset, factor = (tf.tile(value, [WIDTH]) for value in (mean, 1.0 / deviation))

    def standardise(images: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(images, [-1, WIDTH * CHANNELS])
        values = (tf.cast(rows, tf.float32) - offset) * factor
        return tf.reshape(values, [-1, HEIGHT, WIDTH, CHANNELS])

    return standardise
