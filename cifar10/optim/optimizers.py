"""Update rules on the flat vector of weights: momentum, Nesterov, Adam; decay, offsets' rates."""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.optim.muon import Muon, convolutions
from cifar10.weights.packed import Layout


def build(config: TrainConfig, rate: Any, layout: Layout) -> Any:
    """Makes the optimizer.

    Args:
      config: update rule and momentum.
      rate: learning rate, a scalar tensor.
      layout: of the weights.

    Returns:
      A tf.compat.v1.train.Optimizer.
    """
    if config.optimizer == "adam":
        return tf.train.AdamOptimizer(rate)
    if config.optimizer == "muon":
        return Muon(config, rate, layout)
    return tf.train.MomentumOptimizer(
        rate, config.momentum, use_nesterov=config.optimizer == "nesterov"
    )


def with_loss_scale(optimizer: Any, loss_scale: Any) -> Any:
    """For fp16: leaves out steps whose gradients overflow, and changes the scale."""
    if loss_scale is None:
        return optimizer
    return tf.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, loss_scale)


def all_finite(gradients: Sequence[Any]) -> Any:
    """Whether no number of the gradients has overflowed; bool, a scalar tensor."""
    return tf.reduce_all([tf.reduce_all(tf.is_finite(one)) for one in gradients])


def decaying(config: TrainConfig, layout: Layout) -> tuple[int, int]:
    """Which of the weights decay, from and to: the kernels, or biases and all too.

    Not those that Muon keeps at a length of their own.
    """
    kept = convolutions(layout) if config.optimizer == "muon" else []
    end = layout.offset_end if config.decay_biases else layout.kernel_size
    return sum(spec.size for spec in kept), end


def scale_offsets(config: TrainConfig, gradient: Any, layout: Layout) -> Any:
    """Gives the offsets of normalisations a learning rate of their own, as a multiple.

    A gradient that is so many times as large does the same in momentum and Nesterov, apart from
    the decay, which is added afterwards. Adam's steps do not go by the size of the gradient.

    Args:
      config: the multiple.
      gradient: float32 [size].
      layout: where the offsets are.

    Returns:
      float32 [size].
    """
    start, end = layout.offset_start, layout.offset_end
    if config.norm_bias_rate == 1 or start == end:
        return gradient
    offsets = config.norm_bias_rate * gradient[start:end]
    return tf.concat([gradient[:start], offsets, gradient[end:]], axis=0)


def add_decay(config: TrainConfig, gradient: Any, weights: Any, extent: tuple[int, int]) -> Any:
    """Adds `weight_decay * weight` to the gradient, as an L2 loss would.

    For all but Adam; its is `decoupled_weight_decay`.

    Args:
      config: update rule and weight decay.
      gradient: float32 [n].
      weights: float32 [n].
      extent: which decay, see `decaying`.

    Returns:
      float32 [n].
    """
    start, end = extent
    if config.weight_decay == 0 or config.optimizer == "adam" or start == end:
        return gradient
    decayed = gradient[start:end] + config.weight_decay * weights[start:end]
    return tf.concat([gradient[:start], decayed, gradient[end:]], axis=0)


def decoupled_weight_decay(
    config: TrainConfig, rate: Any, gradient: Any, piece: Any, extent: tuple[int, int]
) -> Any:
    """Adam's decay, decoupled from its moments (Loshchilov and Hutter 2017, arXiv:1711.05101).

    Args:
      config: update rule and weight decay.
      rate: learning rate, a scalar tensor.
      gradient: of the piece; the weights decay once it is known.
      piece: variable float32 [n].
      extent: where the piece starts in the weights, and how many of the weights decay, which come
        first.

    Returns:
      The gradient, known after the decay.
    """
    start, decaying_size = extent
    size = piece.shape[0]
    decaying = min(max(decaying_size - start, 0), size)
    if config.weight_decay == 0 or config.optimizer != "adam" or not decaying:
        return gradient
    # Not an identity: TensorFlow would wait for the other machine's gradient twice, in turn.
    gradient = tf.ensure_shape(gradient, [size])
    with tf.control_dependencies([gradient]):
        shrink = rate * config.weight_decay * piece.read_value()[:decaying]
        shrunk = piece.assign_sub(tf.pad(shrink, [[0, size - decaying]]))
    with tf.control_dependencies([shrunk]):
        return tf.identity(gradient)
