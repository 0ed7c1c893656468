"""Saves packed variables, and variables on other machines, in checkpoints.

A checkpoint contains each layer's variable under the layer's name, however the variable is stored
during training. So evaluation, export and a single process can read a cluster's checkpoints. Only
the chief's machine writes and reads the files; parameter servers need not share a file system with
it.
"""

from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.optim.packed import FlatVariable
from cifar10.step.sync_replicas import Rendezvous
from cifar10.tf_internals import NamedTensors


def make_scaffold(
    packed: Sequence[tuple[FlatVariable, Sequence[tf.Variable]]],
    shared: Optional[Rendezvous],
    keep_checkpoints: int,
) -> tf.train.Scaffold:
    """Makes the scaffold of training: its saver, and the condition for a replica to start.

    Args:
      packed: the flat variables, each with its own pieces or an optimizer's slots for them.
      shared: what several replicas share besides the saved variables; the chief begins a round in
        each of its sessions, and the others wait for that. None: this process trains alone.
      keep_checkpoints: the number of checkpoints to keep.
    """
    covered = {piece.name for _, pieces in packed for piece in pieces}
    plain = [_plain(one) for one in tf.global_variables() if one.name not in covered]
    saver = tf.train.Saver(
        [*(flat_saveable(*one) for one in packed), *plain],
        max_to_keep=keep_checkpoints,
        save_relative_paths=True,
    )
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)  # Hooks look for it there.
    if shared is None or shared.replication.is_chief:
        begin = [] if shared is None else [shared.begin()]
        begun = tf.group(tf.train.Scaffold.default_local_init_op(), *begin)
        return tf.train.Scaffold(saver=saver, local_init_op=begun)
    missing = tf.concat([tf.report_uninitialized_variables(), shared.missing()], axis=0)
    return tf.train.Scaffold(saver=saver, ready_op=missing)


def flat_saveable(flat: FlatVariable, pieces: Sequence[tf.Variable]) -> NamedTensors:
    """Saves a flat variable, or an optimizer's slots for it, as one tensor per layer's variable.

    Args:
      flat: the flat variable, which knows the name, shape and position of each layer's variable.
      pieces: the pieces of `flat`, or the slot of each piece; float32 [size of the piece] each.
    """
    # "packed/weights_0/Momentum" is the slot "/Momentum" of "packed/weights_0".
    suffix = pieces[0].op.name[len(flat.pieces[0].op.name) :]
    parts = []
    for piece in pieces:
        with tf.device(piece.device):
            parts.append(piece.read_value())
    values = flat.section.unpack(flat.join(parts))
    named = {name + suffix: value for name, value in values.items()}

    def assign(restored: Sequence[tf.Tensor]) -> tf.Operation:
        """Joins the layers' tensors to one vector and assigns each piece its part."""
        joined = tf.concat([tf.reshape(tensor, [-1]) for tensor in restored], 0)
        return tf.group(*(piece.assign(part) for piece, part in zip(pieces, flat.cut(joined))))

    return NamedTensors(pieces[0], named, flat.pieces[0].op.name + suffix, assign)


def _plain(variable: tf.Variable) -> NamedTensors:
    """Saves a variable of any shape, on any machine, by this machine."""
    name = variable.op.name
    with tf.device(variable.device):
        value = variable.read_value()
    return NamedTensors(
        variable,
        {name: tf.identity(value)},
        name,
        lambda restored: variable.assign(tf.reshape(restored[0], variable.shape)),
    )
