"""Towers: split a batch, run the model on each part, average the gradients, combine statistics."""

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from cifar10.devices import DevicePlan
from cifar10.layers import Layers, NormStatistics
from cifar10.lockstep import Lockstep
from cifar10.models import Model
from cifar10.placement import VariablePlacer

Tensor = Any


class Tower(NamedTuple):
    """One tower's part of the step."""

    layers: Layers
    logits: Tensor  # float32 [n, 10]
    labels: Tensor  # int64 [n]


def build_towers(
    model: Model,
    make_layers: Callable[..., Layers],
    images: Tensor,
    labels: Tensor,
    plan: DevicePlan,
) -> list[Tower]:
    """Runs the model once a tower, each on its device, on its part of the batch.

    Args:
      model: (Layers, images) -> logits.
      make_layers: makes one tower's Layers; takes `merge` and `reads`.
      images: uint8 [N, 32, 32, 3]; N need not be a multiple of the towers.
      labels: int64 [N].
      plan: the towers' devices and where variables live.

    Returns:
      The towers; the variables are shared.
    """
    image_parts = split_batch(images, plan.num_towers)
    label_parts = split_batch(labels, plan.num_towers)
    lockstep = Lockstep(plan.num_towers)
    reads: dict[str, Tensor] = {}
    placer = VariablePlacer(plan.variable_devices, default="")

    def build(index: int) -> Tower:
        layers = make_layers(merge=lockstep.merge, reads=reads)
        with (
            tf.device(plan.tower_devices[index]),
            tf.device(placer),
            tf.name_scope(f"tower_{index}"),
            tf.variable_scope("model", reuse=tf.AUTO_REUSE, auxiliary_name_scope=False),
        ):
            logits = model(layers, image_parts[index])
        return Tower(layers, logits, label_parts[index])

    return lockstep.run(build)


def split_batch(batch: Tensor, num_towers: int) -> list[Tensor]:
    """[N, ...] -> num_towers parts in order, whose sizes differ by one at most."""
    if num_towers == 1:
        return [batch]
    if batch.shape[0] is not None and batch.shape[0] % num_towers == 0:
        return tf.split(batch, num_towers)
    bounds = [tf.shape(batch)[0] * index // num_towers for index in range(num_towers + 1)]
    return [batch[start:end] for start, end in zip(bounds, bounds[1:])]


def fill_towers(images: Tensor, num_towers: int) -> Tensor:
    """Adds black images where there are fewer than towers, since convolutions want one each.

    Args:
      images: [N, 32, 32, 3].
      num_towers: how many towers share them.

    Returns:
      [max(N, num_towers), 32, 32, 3].
    """
    missing = tf.maximum(num_towers - tf.shape(images)[0], 0)
    return tf.pad(images, [[0, missing], [0, 0], [0, 0], [0, 0]])


def tower_gradients(losses: Sequence[Tensor], towers: Sequence[Tower]) -> list[list[Tensor]]:
    """Differentiates each tower's loss by its own copies of the variables.

    One call for all towers: where they share batch statistics, a tower's loss reaches the copies
    of the others too.

    Args:
      losses: G scalars, the mean loss of each tower.
      towers: the G towers.

    Returns:
      G lists of gradients in the order of `Layers.weights`.
    """
    copies = [weight.copy for tower in towers for weight in tower.layers.weights]
    gradients = tf.gradients(losses, copies, colocate_gradients_with_ops=True)
    count = len(towers[0].layers.weights)
    return [gradients[start : start + count] for start in range(0, len(gradients), count)]


def average_gradients(
    gradients: Sequence[Sequence[Tensor]], variables: Sequence[Any]
) -> list[tuple[Tensor, Any]]:
    """Averages each variable's gradient over the towers, where the variable lives.

    Args:
      gradients: G lists of gradients in the order of `variables`.
      variables: the trainable variables.

    Returns:
      (gradient, variable) pairs; shapes unchanged.

    Raises:
      ValueError: a variable has a gradient on some towers only, or on none.
    """
    pairs = []
    for of_variable, variable in zip(zip(*gradients), variables):
        missing = sum(gradient is None for gradient in of_variable)
        if missing:
            raise ValueError(
                f"{variable.name} has no gradient on {missing} of {len(of_variable)} towers"
            )
        with tf.device(variable.device):
            total = of_variable[0] if len(of_variable) == 1 else tf.add_n(of_variable)
            pairs.append((total / len(of_variable) if len(of_variable) > 1 else total, variable))
    return pairs


def moving_statistics_updates(towers: Sequence[Tower], step: Tensor) -> list[Any]:
    """Updates each moving mean and variance once, from what all towers saw.

    The towers' statistics are combined into those of the whole batch: its mean, and its sample
    variance, which is the mean of the towers' population variances plus the variance of their
    means, times n / (n - 1). Towers are of equal size.

    Early on the decay is (1 + step) / (10 + step), so that the zeros and ones that the statistics
    start from are soon forgotten: with a decay of .997 alone they would weigh 22 % after 500 steps.

    Args:
      towers: the towers, of a training graph.
      step: global step before this update.

    Returns:
      Two assignments a batch-norm layer.
    """
    updates = []
    steps = tf.cast(step, tf.float32)
    decay = tf.minimum(towers[0].layers.norm_decay, (1.0 + steps) / (10.0 + steps))
    for seen in zip(*(tower.layers.statistics for tower in towers)):
        mean, variance = combine_statistics(seen, shared=towers[0].layers.norm == "sync")
        first = seen[0]
        for moving, value in ((first.moving_mean, mean), (first.moving_variance, variance)):
            with tf.device(moving.device):
                updates.append(moving.assign_sub((moving.read_value() - value) * (1.0 - decay)))
    return updates


def combine_statistics(seen: Sequence[NormStatistics], shared: bool) -> tuple[Tensor, Tensor]:
    """Mean and sample variance of a layer's input over the whole batch.

    Args:
      seen: the layer's statistics in each tower.
      shared: the towers' statistics are already those of the whole batch.

    Returns:
      float32 [channels] each.
    """
    if shared or len(seen) == 1:
        mean, variance = seen[0].mean, seen[0].variance
    else:
        means = tf.stack([one.mean for one in seen])  # [G, channels]
        mean, spread = tf.nn.moments(means, axes=[0])
        variance = tf.add_n([one.variance for one in seen]) / len(seen) + spread
    count = tf.cast(tf.add_n([one.count for one in seen]), tf.float32)
    return mean, variance * (count / tf.maximum(count - 1.0, 1.0))


def gather_towers(parts: Sequence[Tensor]) -> Tensor:
    """Joins the towers' parts again, in the order of the batch."""
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)
