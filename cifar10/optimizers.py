"""Update rules on the flat vector of weights: momentum, Nesterov, Adam; decay of the kernels."""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config import TrainConfig


def build(config: TrainConfig, rate: Any) -> Any:
    """Makes the optimizer.

    Args:
      config: update rule and momentum.
      rate: learning rate, a scalar tensor.

    Returns:
      A tf.compat.v1.train.Optimizer.
    """
    if config.optimizer == "adam":
        return tf.train.AdamOptimizer(rate)
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


def add_decay(config: TrainConfig, gradient: Any, weights: Any, kernel_size: int) -> Any:
    """Adds `weight_decay * kernel` to the gradient of the kernels, as an L2 loss would.

    Biases and normalisation do not decay. For momentum and Nesterov; Adam's decay is
    `decoupled_factors`.

    Args:
      config: update rule and weight decay.
      gradient: float32 [size].
      weights: float32 [size], the kernels first.
      kernel_size: how many numbers of it are kernels.

    Returns:
      float32 [size].
    """
    if config.weight_decay == 0 or config.optimizer == "adam":
        return gradient
    kernels = gradient[:kernel_size] + config.weight_decay * weights[:kernel_size]
    return tf.concat([kernels, gradient[kernel_size:]], axis=0)


def decay_apart(
    config: TrainConfig, rate: Any, gradient: Any, piece: Any, extent: tuple[int, int]
) -> Any:
    """Adam's decay, decoupled from its moments (Loshchilov and Hutter 2017, arXiv:1711.05101).

    Args:
      config: update rule and weight decay.
      rate: learning rate, a scalar tensor.
      gradient: of the piece; the kernels decay once it is known.
      piece: variable float32 [n].
      extent: where the piece starts in the weights, and how many of the weights are kernels; the
        kernels come first.

    Returns:
      The gradient, known after the decay.
    """
    start, kernel_size = extent
    size = piece.shape[0]
    kernels = min(max(kernel_size - start, 0), size)
    if config.weight_decay == 0 or config.optimizer != "adam" or not kernels:
        return gradient
    # Not an identity: TensorFlow would wait for the other machine's gradient twice, in turn.
    gradient = tf.ensure_shape(gradient, [size])
    with tf.control_dependencies([gradient]):
        shrink = rate * config.weight_decay * piece.read_value()[:kernels]
        shrunk = piece.assign_sub(tf.pad(shrink, [[0, size - kernels]]))
    with tf.control_dependencies([shrunk]):
        return tf.identity(gradient)
