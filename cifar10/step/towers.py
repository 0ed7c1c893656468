"""Towers: split a batch, run the model on each part, copy the weights, combine statistics.

Images are normalized by the mean and standard deviation of the training images' channels. Both
are variables, saved with the weights, which belong to them: evaluation, prediction and export need
only the checkpoint, and a run that continues on other records normalizes these likewise.
"""

import functools
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from cifar10.models.base import Network
from cifar10.ops.layers import Layers
from cifar10.schema import CHANNELS, HEIGHT, WIDTH

_CHANNELS = ("channel_mean", "channel_deviation")
# A function: uint8 [N, 32, 32, 3] -> float32 [N, 32, 32, 3].
Normalizer = Callable[[tf.Tensor], tf.Tensor]


def build_towers(
    model: Network,
    layers: Sequence[Layers],
    normalize: Normalizer,
    images: tf.Tensor,
    devices: Sequence[str],
) -> list[tf.Tensor]:
    """Runs the model once per tower, on the tower's device and part of the batch.

    Args:
      model: a function (Layers, images float32 [n, 32, 32, 3]) -> logits float32 [n, classes].
      layers: the layers of each tower.
      normalize: a function uint8 [n, 32, 32, 3] -> float32 [n, 32, 32, 3].
      images: uint8 [N, 32, 32, 3]; N need not be a multiple of the number of towers.
      devices: the device of each tower.

    Returns:
      Each tower's logits, float32 [n, classes], on its device.
    """
    with tf.device(machine_of(devices[0])):  # The input is there; each tower fetches its part.
        parts = split_batch(images, len(devices))
    logits: list[tf.Tensor] = []
    for own, device, part in zip(layers, devices, parts):
        with tf.device(device), tf.name_scope(f"tower_{len(logits)}"), model_scope():
            logits.append(model(own, normalize(part)))
    return logits


def model_scope() -> Any:
    """Returns the variable scope of a model, so that names are the same in every tower."""
    return tf.variable_scope("model", reuse=tf.AUTO_REUSE, auxiliary_name_scope=False)


def split_batch(batch: tf.Tensor, num_towers: int) -> list[tf.Tensor]:
    """Splits a batch [N, ...] into parts, in order, whose sizes differ by at most one.

    Args:
      batch: [N, ...].
      num_towers: the number of parts.

    Returns:
      The parts, [n, ...] each.
    """
    if batch.shape[0] is not None and batch.shape[0] % num_towers == 0:
        return tf.split(batch, num_towers)
    bounds = [tf.shape(batch)[0] * index // num_towers for index in range(num_towers + 1)]
    return [batch[start:end] for start, end in zip(bounds, bounds[1:])]


def fill_towers(images: tf.Tensor, num_towers: int) -> tf.Tensor:
    """Adds black images, so that each of several towers has an image.

    A single tower gets its images unchanged: TensorFlow Lite, to which exported models are
    converted, has no op that pads uint8. So a batch without images fails there.

    Args:
      images: uint8 [N, 32, 32, 3].
      num_towers: the number of towers that share the images.

    Returns:
      uint8 [max(N, num_towers), 32, 32, 3]; the images themselves for one tower.
    """
    if num_towers == 1:
        return images
    missing = tf.maximum(num_towers - tf.shape(images)[0], 0)
    return tf.pad(images, [[0, missing], [0, 0], [0, 0], [0, 0]])


def machine_of(device: str) -> str:
    """Returns the CPU of the machine that has `device`, as a device name."""
    spec = tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0)
    return str(spec.to_string())


def copies_of_weights(shards: Sequence[tf.Tensor], devices: Sequence[str]) -> list[tf.Tensor]:
    """Copies the weights to each tower.

    Weights on CPUs are fetched once per machine. Weights on GPUs are copied between GPUs, once for
    each GPU that has towers.

    Args:
      shards: the shards of the flat vector, in order, float32 [size of the shard] each.
      devices: the device of each tower.

    Returns:
      One copy per tower, float32 [size], on the tower's device.
    """
    on_gpus = tf.DeviceSpec.from_string(shards[0].device).device_type == "GPU"
    joined: dict[str, tf.Tensor] = {}
    copies = []
    for device in devices:
        first = device if on_gpus else machine_of(device)
        if first not in joined:
            with tf.device(first):
                joined[first] = tf.concat(shards, 0)
        with tf.device(device):
            copies.append(tf.identity(joined[first]))
    return copies


def tower_moments(layers: Layers, device: str) -> tf.Tensor:
    """Joins the moments of a tower's batch-norm layers: all means, then all mean squares.

    Mean squares, unlike variances, can simply be averaged over towers and machines.

    Args:
      layers: the layers of the tower.
      device: the device of the tower.

    Returns:
      float32 [2 * channels of all layers].
    """
    means = [layer.mean for layer in layers.statistics]
    with tf.device(device):
        squares = [layer.variance + tf.square(layer.mean) for layer in layers.statistics]
        return tf.concat(means + squares, axis=0)


def statistics_of(moments: tf.Tensor, layers: Sequence[Layers], num_replicas: int) -> tf.Tensor:
    """Converts averaged moments to means and sample variances, as in the moving statistics.

    The sample variance is the population variance times n / (n - 1), where n counts the values of
    all towers of all replicas.

    Args:
      moments: float32 [2 * channels], see `tower_moments`.
      layers: the layers of each tower of this replica.
      num_replicas: the number of replicas whose moments were averaged.

    Returns:
      All means, then all variances, float32 [2 * channels].
    """
    factors = []
    for of_layer in zip(*(of_tower.statistics for of_tower in layers)):
        count = tf.cast(tf.add_n([part.count for part in of_layer]) * num_replicas, tf.float32)
        factors.append(tf.fill(of_layer[0].mean.shape, count / tf.maximum(count - 1.0, 1.0)))
    mean, square = tf.split(moments, 2)
    variance = tf.maximum(square - tf.square(mean), 0.0) * tf.concat(factors, axis=0)
    return tf.concat([mean, variance], axis=0)


def normalizer(values: Sequence[Sequence[float]], device: str, task_device: str = "") -> Normalizer:
    """Makes the function by which each tower normalizes its images.

    If the variables are on another machine, it uses local copies of them, which each session makes
    when it begins, so that no step fetches them. In-graph, the chief sends them to the other
    machines.

    Args:
      values: the mean and the standard deviation of each channel, by which a new run begins.
      device: the device of both variables.
      task_device: this process's job and task; empty for a process that trains alone.
    """
    variable = functools.partial(
        tf.get_variable, dtype=tf.float32, trainable=False, use_resource=True
    )
    with tf.variable_scope("input", reuse=tf.AUTO_REUSE), tf.device(device):
        used = [
            variable(name, [CHANNELS], initializer=tf.constant_initializer(value))
            for name, value in zip(_CHANNELS, values)
        ]
    if not device.startswith(task_device):
        with tf.variable_scope("input"), tf.device(f"{task_device}/device:CPU:0"):
            local = [tf.GraphKeys.LOCAL_VARIABLES]
            used = [
                variable(f"own_{name}", initializer=shared.read_value(), collections=local)
                for name, shared in zip(_CHANNELS, used)
            ]
    with tf.device(used[0].device):  # A GPU would gain nothing by computing these numbers itself.
        mean, std = (value.read_value() for value in used)
        # Whole rows of 32 x 3 numbers: broadcasting over three numbers takes five times as long.
        offset, factor = (tf.tile(value, [WIDTH]) for value in (mean, 1.0 / std))

    def normalize(images: tf.Tensor) -> tf.Tensor:
        rows = tf.reshape(images, [-1, WIDTH * CHANNELS])
        values = (tf.cast(rows, tf.float32) - offset) * factor
        return tf.reshape(values, [-1, HEIGHT, WIDTH, CHANNELS])

    return normalize
