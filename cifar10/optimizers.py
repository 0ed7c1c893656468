"""Update rules: momentum, Nesterov, Adam; decay of the kernels inside the update."""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config import TrainConfig
from cifar10.layers import KERNEL, Weight


def build(config: TrainConfig, rate: Any, loss_scale: Any = None) -> Any:
    """Makes the optimizer.

    Args:
      config: update rule and momentum.
      rate: learning rate, a scalar tensor.
      loss_scale: for fp16; steps whose gradients overflow are left out and change the scale.

    Returns:
      A tf.compat.v1.train.Optimizer.
    """
    if config.optimizer == "adam":
        optimizer = tf.train.AdamOptimizer(rate)
    else:
        optimizer = tf.train.MomentumOptimizer(
            rate, config.momentum, use_nesterov=config.optimizer == "nesterov"
        )
    if loss_scale is None:
        return optimizer
    return tf.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, loss_scale)


def decay_kernels(
    config: TrainConfig,
    rate: Any,
    gradients: Sequence[tuple[Any, Any]],
    weights: Sequence[Weight],
) -> list[tuple[Any, Any]]:
    """Lets the kernels decay with the update; biases and normalisation do not decay.

    Momentum and Nesterov get `weight_decay * kernel` added to the gradient, which is what an L2
    loss adds, without the loss. Adam's decay is decoupled from its moments (Loshchilov and Hutter
    2017, arXiv:1711.05101).

    Args:
      config: update rule and weight decay.
      rate: learning rate, a scalar tensor.
      gradients: (gradient, variable) pairs.
      weights: kinds and values of the same variables, in the same order.

    Returns:
      (gradient, variable) pairs for the optimizer.
    """
    if config.weight_decay == 0:
        return list(gradients)
    values = {weight.variable.name: weight.copy for weight in weights if weight.kind == KERNEL}

    def decayed(gradient: Any, variable: Any) -> Any:
        if variable.name not in values:
            return gradient
        if config.optimizer != "adam":
            return gradient + config.weight_decay * values[variable.name]
        with tf.control_dependencies([gradient]):
            shrink = variable.assign_sub(rate * config.weight_decay * values[variable.name])
        with tf.control_dependencies([shrink]):
            return tf.identity(gradient)

    return [(decayed(gradient, variable), variable) for gradient, variable in gradients]
