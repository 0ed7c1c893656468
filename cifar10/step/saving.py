"""Saves packed variables, and variables on other machines, in checkpoints.

A checkpoint contains each layer's variable under the layer's name, however the variable is stored
during training. So evaluation, export and a single process can read a cluster's checkpoints. Only
the chief's machine writes and reads the files; parameter servers need not share a file system with
it.
"""

from collections.abc import Sequence

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.optim.packed import FlatVariable
from cifar10.step.sync_replicas import SharedState
from cifar10.tf_internals.saving import NamedTensors


class FlatSaveable(NamedTensors):
    """Saves a flat variable, or an optimizer's slots for it, as one tensor per layer's variable.

    Args:
      flat: the flat variable, which knows the name, shape and position of each layer's variable.
      pieces: the pieces of `flat`, or the slot of each piece; float32 [size of the piece] each.

    Attributes:
      covers: the names of the variables that this object saves.
    """

    def __init__(self, flat: FlatVariable, pieces: Sequence[tf.Variable]) -> None:
        self._flat, self._pieces = flat, list(pieces)
        # "packed/weights_0/Momentum" is the slot "/Momentum" of "packed/weights_0".
        suffix = pieces[0].op.name[len(flat.pieces[0].op.name) :]
        self.covers = {piece.name for piece in self._pieces}
        parts = []
        for piece in self._pieces:
            with tf.device(piece.device):
                parts.append(piece.read_value())
        values = flat.section.unpack(flat.join(parts))
        named = {name + suffix: value for name, value in values.items()}
        super().__init__(pieces[0], named, flat.pieces[0].op.name + suffix, self._join_and_assign)

    def _join_and_assign(self, restored: Sequence[tf.Tensor]) -> tf.Operation:
        """Joins the restored tensors to one vector and assigns each piece its part.

        Args:
          restored: one tensor per layer's variable, float32 of the variable's shape.
        """
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in restored], 0)
        return tf.group(
            *(piece.assign(part) for piece, part in zip(self._pieces, self._flat.cut(flat)))
        )


def _plain_saveable(variable: tf.Variable) -> NamedTensors:
    """Returns the saveable of a variable of any shape, on any machine, saved by this machine."""
    name = variable.op.name
    with tf.device(variable.device):
        value = variable.read_value()
    return NamedTensors(
        variable,
        {name: tf.identity(value)},
        name,
        lambda restored: variable.assign(tf.reshape(restored[0], variable.shape)),
    )


def make_scaffold(
    flat: Sequence[FlatSaveable], shared: SharedState, config: TrainConfig
) -> tf.train.Scaffold:
    """Makes the scaffold of training: its saver, and the condition for a replica to start.

    Args:
      flat: the packed variables.
      shared: the state that replicas share besides the saved variables; the chief initialises it
        in each of its sessions, and the others wait for that.
      config: the settings, with the number of checkpoints to keep.
    """
    covered = set().union(*(one.covers for one in flat))
    plain = [_plain_saveable(one) for one in tf.global_variables() if one.name not in covered]
    saver = tf.train.Saver(
        [*flat, *plain], max_to_keep=config.keep_checkpoints, save_relative_paths=True
    )
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)  # Hooks look for it there.
    if shared.is_chief:
        begin = tf.group(tf.train.Scaffold.default_local_init_op(), *shared.initializers())
        return tf.train.Scaffold(saver=saver, local_init_op=begin)
    missing = tf.concat([tf.report_uninitialized_variables(), *shared.missing()], axis=0)
    return tf.train.Scaffold(saver=saver, ready_op=missing)
