"""Update rules on the flat vector of weights: momentum, Nesterov, Adam; decay, offsets' rates."""

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.optim.muon import Muon
from cifar10.weights.packed import Layout
from cifar10.weights.spec import BIAS, KERNEL, NORM, OFFSET, Spec


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


def all_finite(gradients: Sequence[Any]) -> Any:
    """Whether no number of the gradients has overflowed; bool, a scalar tensor."""
    return tf.reduce_all([tf.reduce_all(tf.is_finite(one)) for one in gradients])


def weight_decay(config: TrainConfig, layout: Layout) -> tf.Tensor:
    """The decay of each weight: float32 [size], zeros for those that do not decay."""
    return layout.weights.constant(
        lambda spec: config.weight_decay if _decays(config, spec) else 0.0
    )


def _decays(config: TrainConfig, spec: Spec) -> bool:
    if spec.kind == KERNEL:
        # Muon keeps those of convolutions at a length of their own.
        return config.optimizer != "muon" or len(spec.shape) != 4
    return config.decay_biases and spec.kind in (BIAS, NORM, OFFSET)


def rate_factors(config: TrainConfig, layout: Layout) -> tf.Tensor:
    """Each weight's multiple of the learning rate, float32 [size]: offsets have one of their own.

    In momentum and Nesterov, multiplying the gradient has the same effect; the decay is added
    afterwards. Adam's steps do not depend on the size of the gradient.
    """
    return layout.weights.constant(
        lambda spec: config.norm_bias_rate if spec.kind == OFFSET else 1.0
    )


def scale_and_decay(
    config: TrainConfig, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Scales each weight's gradient by `rate_factors` and adds `weight_decay * weight` to it.

    That is the gradient of an L2 loss. Adam's decay is `decoupled_weight_decay`.

    Args:
      config: update rule, weight decay, multiple.
      layout: of the weights.
      gradient: float32 [size].
      weights: float32 [size]; None: adds no decay.

    Returns:
      float32 [size].
    """
    if config.norm_bias_rate != 1:
        gradient *= rate_factors(config, layout)
    if config.weight_decay != 0 and config.optimizer != "adam" and weights is not None:
        gradient += weight_decay(config, layout) * weights
    return gradient


def decoupled_weight_decay(
    rate: tf.Tensor, gradient: tf.Tensor, piece: Any, decay: tf.Tensor
) -> tf.Tensor:
    """Adam's decay, decoupled from its moments (Loshchilov and Hutter 2017, arXiv:1711.05101).

    Args:
      rate: learning rate, a scalar.
      gradient: of the piece, float32 [n]; the weights decay once it is known.
      piece: variable float32 [n].
      decay: of its weights, float32 [n].

    Returns:
      The gradient, known after the decay.
    """
    # Not an identity: TensorFlow would wait for the other machine's gradient twice, in turn.
    gradient = tf.ensure_shape(gradient, piece.shape)
    with tf.control_dependencies([gradient]):
        shrunk = piece.assign_sub(rate * decay * piece.read_value())
    with tf.control_dependencies([shrunk]):
        return tf.identity(gradient)
