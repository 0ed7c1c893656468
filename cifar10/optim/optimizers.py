"""Update rules, weight decay and rate factors for the flat vector of weights."""

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.optim.muon import Muon
from cifar10.weights.packed import Layout
from cifar10.weights.spec import BIAS, KERNEL, NORM, OFFSET, Spec

# TensorFlow makes one constant of the factors of all weights before the first step, and copies it
# from optimizer to optimizer of its graph: for ten million weights, that takes three seconds.
# Slices have no such constants. For few weights, they copy more in each step than they save.
_FEW = 1 << 20  # weights


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
    return layout.weights.constant(lambda spec: _decay(config, spec))


def _decay(config: TrainConfig, spec: Spec) -> float:
    if spec.kind == KERNEL:
        # Muon keeps the norm of convolutions' kernels fixed.
        decays = config.optimizer != "muon" or len(spec.shape) != 4
    else:
        decays = config.decay_biases and spec.kind in (BIAS, NORM, OFFSET)
    return config.weight_decay if decays else 0.0


def _rate_factor(config: TrainConfig, spec: Spec) -> float:
    """Returns the factor of a weight's rate; it is 1 except for offsets.

    In momentum and Nesterov, multiplying the gradient by it has the same effect; the decay is added
    afterwards. In Adam it has none, since Adam's steps do not depend on the gradient's scale.
    """
    return config.norm_bias_rate if spec.kind == OFFSET else 1.0


def scale_and_decay(
    config: TrainConfig, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Scales each weight's gradient by its rate's factor and adds its decay times the weight to it.

    The added term is the gradient of an L2 loss. For Adam, see `decoupled_weight_decay`.

    Args:
      config: the settings, with update rule, weight decay and the offsets' rate factor.
      layout: the positions of the weights in the flat vector.
      gradient: float32 [size].
      weights: float32 [size]; None: no decay is added.

    Returns:
      float32 [size].
    """
    decaying = None if config.optimizer == "adam" else weights
    if layout.weights.size <= _FEW:
        return _with_constants(config, layout, gradient, decaying)
    return _with_slices(config, layout, gradient, decaying)


def _with_constants(
    config: TrainConfig, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Does what `scale_and_decay` does by a factor and a decay for each weight."""
    if config.norm_bias_rate != 1:
        gradient *= layout.weights.constant(lambda spec: _rate_factor(config, spec))
    if config.weight_decay != 0 and weights is not None:
        gradient += weight_decay(config, layout) * weights
    return gradient


def _with_slices(
    config: TrainConfig, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Does what `scale_and_decay` does by slices, each with one factor and one decay."""
    parts, end = [], 0
    rules = layout.weights.runs(lambda spec: (_rate_factor(config, spec), _decay(config, spec)))
    for (factor, decay), size in rules:
        start, end = end, end + size
        part = gradient[start:end]
        if factor != 1:
            part *= factor
        if decay != 0 and weights is not None:
            part += decay * weights[start:end]
        parts.append(part)
    return tf.concat(parts, 0)


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
