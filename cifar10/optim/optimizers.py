"""Update rules, weight decay and rate factors for the flat vector of weights."""

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
      config: the settings, with update rule and momentum.
      rate: the learning rate, a scalar tensor.
      layout: the positions of the weights in the flat vector.

    Returns:
      A tf.compat.v1.train.Optimizer.

    Raises:
      LookupError: no update rule has the optimizer's name.
    """
    if config.optimizer == "adam":
        return tf.train.AdamOptimizer(rate)
    if config.optimizer == "muon":
        return Muon(config, rate, layout)
    if config.optimizer not in ("momentum", "nesterov"):
        raise LookupError(f"--optimizer {config.optimizer} has no update rule in optimizers.build")
    return tf.train.MomentumOptimizer(
        rate, config.momentum, use_nesterov=config.optimizer == "nesterov"
    )


def all_finite(gradients: Sequence[Any]) -> Any:
    """Returns whether all numbers of the gradients are finite, a bool scalar tensor."""
    return tf.reduce_all([tf.reduce_all(tf.is_finite(one)) for one in gradients])


def weight_decay(config: TrainConfig, layout: Layout) -> tf.Tensor:
    """Returns the decay of each weight, float32 [size]; it is 0 for weights that do not decay."""
    return layout.weights.constant(
        lambda spec: config.weight_decay if _decays(config, spec) else 0.0
    )


def _decays(config: TrainConfig, spec: Spec) -> bool:
    if spec.kind == KERNEL:
        # Muon keeps the norm of convolutions' kernels fixed.
        return config.optimizer != "muon" or len(spec.shape) != 4
    return config.decay_biases and spec.kind in (BIAS, NORM, OFFSET)


def rate_factors(config: TrainConfig, layout: Layout) -> tf.Tensor:
    """Returns the factor of each weight's rate, float32 [size]; it is 1 except for offsets.

    In momentum and Nesterov, multiplying the gradient by it has the same effect; the decay is added
    afterwards. In Adam it has none, since Adam's steps do not depend on the gradient's scale.
    """
    return layout.weights.constant(
        lambda spec: config.norm_bias_rate if spec.kind == OFFSET else 1.0
    )


def scale_and_decay(
    config: TrainConfig, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Scales each weight's gradient by `rate_factors` and adds `weight_decay * weight` to it.

    The added term is the gradient of an L2 loss. For Adam, see `decoupled_weight_decay`.

    Args:
      config: the settings, with update rule, weight decay and the offsets' rate factor.
      layout: the positions of the weights in the flat vector.
      gradient: float32 [size].
      weights: float32 [size]; None: no decay is added.

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
    """Applies Adam's decay, decoupled from its moments (Loshchilov & Hutter, arXiv:1711.05101).

    Args:
      rate: the learning rate, a scalar.
      gradient: the gradient of the piece, float32 [n]; the weights decay after it is computed.
      piece: a piece of the weights, a variable float32 [n].
      decay: the decay of each weight of the piece, float32 [n].

    Returns:
      The gradient unchanged, but available only after the decay.
    """
    # Not tf.identity: TensorFlow would wait for the other machine's gradient twice, in sequence.
    gradient = tf.ensure_shape(gradient, piece.shape)
    with tf.control_dependencies([gradient]):
        shrunk = piece.assign_sub(rate * decay * piece.read_value())
    with tf.control_dependencies([shrunk]):
        return tf.identity(gradient)
