"""Lookahead: every few steps the weights are pulled back to a moving average of themselves.

Zhang et al. 2019 (arXiv:1907.08610), with the decay of airbench94 (Jordan 2024, arXiv:2404.00498,
section 3.4): the decay grows with the cube of the progress of the run, so the average forgets the
early steps and smooths the late ones. After each pull, training continues from the average. The
weights of the last step are the average; a run that ends before has those of its last step.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

_DECAY = 0.95  # decay per step, at the end of the run
_SUFFIX = "Lookahead"


class Lookahead:
    """Moving averages of the pieces of flat variables, each on the device of its piece.

    Args:
      every: the number of steps between two pulls.
      pieces: the variables to average, float32 [n] each: the weights and the moving statistics.
      total_steps: the global step at which training ends.

    Attributes:
      averages: one variable per piece, whose initial value is that of the piece.
    """

    def __init__(self, every: int, pieces: Sequence[Any], total_steps: int) -> None:
        self._every, self._pieces, self._total = every, pieces, total_steps
        self.averages = [_average_of(piece) for piece in pieces]

    def pull(self, step: Any, counted: Any = True) -> Any:
        """Returns the op that, every few steps, updates the averages and resets the pieces to them.

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
        return tf.group(*(_pull(due, decay, *pair) for pair in zip(self._pieces, self.averages)))


def _average_of(piece: Any) -> Any:
    with tf.device(piece.device):
        return tf.get_variable(
            f"{piece.op.name}/{_SUFFIX}",
            initializer=piece.initial_value,
            trainable=False,
            use_resource=True,
        )


def _pull(due: Any, decay: Any, piece: Any, average: Any) -> Any:
    def pulled() -> Any:
        now = piece.read_value()
        # In this form, a value that equals its average stays the same to the last bit.
        value = now + decay * (average.read_value() - now)
        with tf.control_dependencies([average.assign(value), piece.assign(value)]):
            return tf.constant(True)

    with tf.device(piece.device):
        return tf.cond(due, pulled, lambda: tf.constant(False))
