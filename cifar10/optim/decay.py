"""What changes the flat vector of weights besides an optimizer: decay, rate factors, lookahead."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.ops.variables import BIAS, KERNEL, NORM, OFFSET, Spec
from cifar10.optim.base import Optimizer
from cifar10.optim.packed import FlatVariable, Layout

_DECAY = 0.95  # of lookahead's averages per step, at the end of the run
_SUFFIX = "Lookahead"


class DecayRules(NamedTuple):
    """How each weight's gradient is scaled and decays.

    Attributes:
      optimizer: the update rule.
      config: the settings; they decide what decays, and how fast offsets learn.
    """

    optimizer: Optimizer
    config: Any

    def decay(self, spec: Spec) -> float:
        """Returns the decay of a weight."""
        if spec.kind == KERNEL:
            decays = self.optimizer.decays(spec)
        else:
            decays = self.config.decay_biases and spec.kind in (BIAS, NORM, OFFSET)
        return float(self.config.weight_decay) if decays else 0.0

    def factor(self, spec: Spec) -> float:
        """Returns the factor of a weight's rate; it is 1 except for offsets.

        Where a step follows the gradient's scale, multiplying the gradient by it has the same
        effect; the decay is added afterwards.
        """
        return float(self.config.norm_bias_rate) if spec.kind == OFFSET else 1.0


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
    added = None if rules.optimizer.decouples_decay else weights
    # A slice for each run of equal rules. TensorFlow would copy a constant of the decay of each
    # weight from optimizer to optimizer of its graph: for ten million weights, that takes seconds.
    parts, end = [], 0
    runs = layout.weights.runs(lambda spec: (rules.factor(spec), rules.decay(spec)))
    for (factor, decay), size in runs:
        start, end = end, end + size
        part = gradient[start:end]
        if factor != 1:
            part *= factor
        if decay != 0 and added is not None:
            part += decay * added[start:end]
        parts.append(part)
    return tf.concat(parts, 0)


def decoupled(
    rules: DecayRules, weights: FlatVariable, gradients: Sequence[tf.Tensor], rate: tf.Tensor
) -> list[tf.Tensor]:
    """Applies decay by itself, decoupled from the optimizer's moments (arXiv:1711.05101).

    Args:
      rules: how each weight decays.
      weights: the weights, which decay after the gradient is computed.
      gradients: one gradient per shard of the weights, float32 [size of the shard].
      rate: the learning rate, a float32 scalar; 0 if the step is skipped.

    Returns:
      The gradients unchanged, but available only after the decay.
    """
    decayed = []
    for index, (gradient, shard) in enumerate(zip(gradients, weights.shards)):
        with tf.device(shard.device):
            decay = weights.split(weights.section.constant(rules.decay))[index]
            # Not tf.identity: TensorFlow would wait for another machine's gradient twice, in turn.
            gradient = tf.ensure_shape(gradient, shard.shape)
            with tf.control_dependencies([gradient]):
                shrunk = shard.assign_sub(rate * decay * shard.read_value())
            with tf.control_dependencies([shrunk]):
                decayed.append(tf.identity(gradient))
    return decayed


class Lookahead:
    """Moving averages of the shards of flat variables, each on the device of its shard.

    Every few steps, the weights are pulled back to a moving average of themselves (Zhang et al.
    2019, arXiv:1907.08610), with the decay of airbench94 (Jordan 2024, arXiv:2404.00498, section
    3.4): it grows with the cube of the progress of the run, so the average forgets the early steps
    and smooths the late ones. After each pull, training continues from the average. The weights of
    the last step are the average; a run that ends before has those of its last step.

    Args:
      every: the number of steps between two pulls.
      shards: the variables to average, float32 [n] each: the weights and the moving statistics.
      total_steps: the global step at which training ends.

    Attributes:
      averages: one variable per shard, whose initial value is that of the shard.
    """

    def __init__(self, every: int, shards: Sequence[Any], total_steps: int) -> None:
        self._every, self._shards, self._total = every, shards, total_steps
        self.averages = []
        for shard in shards:
            with tf.device(shard.device):
                name, value = f"{shard.op.name}/{_SUFFIX}", shard.initial_value
                self.averages.append(
                    tf.get_variable(name, initializer=value, trainable=False, use_resource=True)
                )

    def pull(self, step: Any, counted: Any = True) -> Any:
        """Returns the op that, every few steps, updates the averages and resets the shards to them.

        Args:
          step: the global step after the update, an int64 scalar tensor.
          counted: whether the update was counted as a step, a bool scalar tensor; one that was
            skipped since its gradients overflow is not, and pulls nothing.
        """
        is_round = tf.equal(step % self._every, 0)
        progress = tf.cast(step / self._total, tf.float32)
        # Steps after a run's last regular pull are not included in the average.
        decay = tf.where(is_round, _DECAY**self._every * progress**3, 1.0)
        # Before the first pull, the averages are initial values.
        due = counted & (is_round | ((step >= self._total) & (step >= self._every)))
        return tf.group(*(_pull(due, decay, *pair) for pair in zip(self._shards, self.averages)))


def _pull(due: Any, decay: Any, shard: Any, average: Any) -> Any:
    def pulled() -> Any:
        now = shard.read_value()
        # In this form, a value that equals its average stays the same to the last bit.
        value = now + decay * (average.read_value() - now)
        with tf.control_dependencies([average.assign(value), shard.assign(value)]):
            return tf.constant(True)

    with tf.device(shard.device):
        return tf.cond(due, pulled, lambda: tf.constant(False))
