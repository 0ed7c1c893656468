"""Optimizers whose update reads all weights at once, not piece by piece."""

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

_SLOT = "momentum"
# A function: (weights, gradient, slot) -> (new weights, new slot), each float32 [size].
Update = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class WholeVector(tf.train.Optimizer):
    """Applies gradients to the pieces of a flat vector of weights, with one slot for each weight.

    Args:
      name: the optimizer's name, with which the names of slots in checkpoints end.
      update: the rule; the slot is 0 at first.
    """

    def __init__(self, name: str, update: Update) -> None:
        super().__init__(use_locking=False, name=name)
        self.update, self.slots = update, dict[str, Any]()

    def get_slot_names(self) -> list[str]:
        """Returns the name of the only slot."""
        return [_SLOT]

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns the slot of a piece, a variable of its shape; the first call makes it."""
        if var.name not in self.slots:
            with tf.init_scope(), tf.device(var.device):
                self.slots[var.name] = tf.get_variable(
                    f"{var.op.name}/{self.get_name()}",
                    var.shape,
                    tf.float32,
                    tf.zeros_initializer(),
                    trainable=False,
                    use_resource=True,
                )
        return self.slots[var.name]

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[tf.Tensor, Any]],
        global_step: Any = None,
        name: Any = None,
    ) -> Any:
        """Returns the op that updates the weights and counts the step.

        Args:
          grads_and_vars: all pieces of the flat vector, in order, each as a pair of its gradient,
            float32 [n], and its variable.
          global_step: the variable that counts steps; None: the step is not counted.
          name: the name of the op.
        """
        gradients, pieces = zip(*grads_and_vars)
        slots = [self.get_slot(piece, _SLOT) for piece in pieces]
        gradient = tf.concat(gradients, 0)
        weights, kept = self.update(_join(pieces), gradient, _join(slots))
        done = _assign(pieces, weights) + _assign(slots, kept)
        if global_step is None:
            return tf.group(*done, name=name)
        with tf.control_dependencies(done):
            return global_step.assign_add(1, name=name).op


def _join(variables: Sequence[Any]) -> tf.Tensor:
    return tf.concat([one.read_value() for one in variables], 0)


def _assign(pieces: Sequence[Any], flat: tf.Tensor) -> list[Any]:
    parts = tf.split(flat, [piece.shape[0] for piece in pieces])
    return [piece.assign(part) for piece, part in zip(pieces, parts)]
