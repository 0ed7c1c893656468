"""Lookahead: every few steps the weights are pulled back to a moving average of themselves.

Zhang et al. 2019 (arXiv:1907.08610), with the decay of airbench94 (Jordan 2024, arXiv:2404.00498,
section 3.4): it grows with the cube of the share of the run, so the average forgets the early steps
and calms the late ones. Training goes on from the average, and ends with it, also if it ends before
its last step. A run that goes on after that goes on from the average, as after any pull.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig

_DECAY = 0.95  # a step, at the end of the run
_SUFFIX = "Lookahead"


class Lookahead:
    """Averages of the pieces of flat variables, each beside its piece.

    Args:
      config: the steps between two pulls.
      pieces: what is averaged: weights, and the moving statistics that go with them.
      total_steps: global step at which training ends.

    Attributes:
      averages: a variable a piece, which begins with its value.
    """

    def __init__(self, config: TrainConfig, pieces: Sequence[Any], total_steps: int) -> None:
        self._every, self._pieces, self._total = config.lookahead_steps, pieces, total_steps
        self.averages = [_average_of(piece) for piece in pieces]

    def pull(self, step: Any) -> Any:
        """Returns the op that averages, where it is time.

        Args:
          step: global step after the update, an int64 scalar tensor.
        """
        is_round = tf.equal(step % self._every, 0)
        progress = tf.cast(step / self._total, tf.float32)
        # The last steps of a run that come after the last pull are left out of the average.
        decay = tf.where(is_round, _DECAY**self._every * progress**3, 1.0)
        due = is_round | ((step >= self._total) & self._has_average(step))
        return self._pull_all(due, decay)

    def end(self, step: Any) -> Any:
        """Returns the op that ends training where no step will: the weights become the average.

        Args:
          step: global step, an int64 scalar tensor.
        """
        return self._pull_all(self._has_average(step), 1.0)

    def _has_average(self, step: Any) -> Any:
        """Before the first pull there are first values in the place of averages."""
        return step >= self._every

    def _pull_all(self, due: Any, decay: Any) -> Any:
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
        # In this form what does not change stays the same to the last bit.
        value = now + decay * (average.read_value() - now)
        with tf.control_dependencies([average.assign(value), piece.assign(value)]):
            return tf.constant(True)

    with tf.device(piece.device):
        return tf.cond(due, pulled, lambda: tf.constant(False))
