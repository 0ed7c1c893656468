"""Weight decay and rate factors for the flat vector of weights."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.ops.variables import BIAS, KERNEL, NORM, OFFSET, Spec
from cifar10.optim.base import Optimizer
from cifar10.optim.packed import Layout

# TensorFlow makes one constant of the factors of all weights before the first step, and copies it
# from optimizer to optimizer of its graph: for ten million weights, that takes three seconds.
# Slices have no such constants. For few weights, they copy more in each step than they save.
_FEW = 1 << 20  # weights


class DecayRules(NamedTuple):
    """How each weight's gradient is scaled and decays.

    Attributes:
      optimizer: the update rule.
      weight_decay: the decay of kernels.
      decay_biases: whether biases and the weights of normalisations decay, too.
      norm_bias_rate: the rate of normalisations' offsets, as a multiple of the others'.
    """

    optimizer: Optimizer
    weight_decay: float = 0.0
    decay_biases: bool = False
    norm_bias_rate: float = 1.0

    def decay(self, spec: Spec) -> float:
        """Returns the decay of a weight."""
        if spec.kind == KERNEL:
            decays = self.optimizer.decays(spec)
        else:
            decays = self.decay_biases and spec.kind in (BIAS, NORM, OFFSET)
        return self.weight_decay if decays else 0.0

    def factor(self, spec: Spec) -> float:
        """Returns the factor of a weight's rate; it is 1 except for offsets.

        Where a step follows the gradient's scale, multiplying the gradient by it has the same
        effect; the decay is added afterwards.
        """
        return self.norm_bias_rate if spec.kind == OFFSET else 1.0


def all_finite(gradients: Sequence[Any]) -> Any:
    """Returns whether all numbers of the gradients are finite, a bool scalar tensor."""
    return tf.reduce_all([tf.reduce_all(tf.is_finite(one)) for one in gradients])


def scale_and_decay(
    rules: DecayRules, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Scales each weight's gradient by its rate's factor and adds its decay times the weight to it.

    The added term is the gradient of an L2 loss. If the optimizer decouples it, see `decoupled`.

    Args:
      rules: how each weight's gradient is scaled and decays.
      layout: the positions of the weights in the flat vector.
      gradient: float32 [size].
      weights: float32 [size]; None: no decay is added.

    Returns:
      float32 [size].
    """
    decaying = None if rules.optimizer.decouples_decay else weights
    if layout.weights.size <= _FEW:
        return _with_constants(rules, layout, gradient, decaying)
    return _with_slices(rules, layout, gradient, decaying)


def _with_constants(
    rules: DecayRules, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Does what `scale_and_decay` does by a factor and a decay for each weight."""
    if rules.norm_bias_rate != 1:
        gradient *= layout.weights.constant(rules.factor)
    if rules.weight_decay != 0 and weights is not None:
        gradient += layout.weights.constant(rules.decay) * weights
    return gradient


def _with_slices(
    rules: DecayRules, layout: Layout, gradient: tf.Tensor, weights: Optional[tf.Tensor]
) -> tf.Tensor:
    """Does what `scale_and_decay` does by slices, each with one factor and one decay."""
    parts, end = [], 0
    runs = layout.weights.runs(lambda spec: (rules.factor(spec), rules.decay(spec)))
    for (factor, decay), size in runs:
        start, end = end, end + size
        part = gradient[start:end]
        if factor != 1:
            part *= factor
        if decay != 0 and weights is not None:
            part += decay * weights[start:end]
        parts.append(part)
    return tf.concat(parts, 0)


def decoupled(rate: tf.Tensor, gradient: tf.Tensor, piece: Any, decay: tf.Tensor) -> tf.Tensor:
    """Applies decay by itself, decoupled from the optimizer's moments (arXiv:1711.05101).

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
