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

    def rule(spec: Spec) -> tuple[float, float]:
        return _rate_factor(config, spec), 0.0 if decaying is None else _decay(config, spec)

    # Slices instead of factors for all weights, which TensorFlow would compute before the first
    # step and copy from optimizer to optimizer of its graph: three seconds for ten million weights.
    runs = layout.weights.runs(rule)
    if all(value == (1.0, 0.0) for value, _ in runs):
        return gradient
    parts, end = [], 0
    for (factor, decay), size in runs:
        start, end = end, end + size
        part = gradient[start:end]
        if factor != 1:
            part *= factor
        if decaying is not None and decay != 0:
            part += decay * decaying[start:end]
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
