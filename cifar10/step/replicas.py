"""State that the replicas of a cluster share besides the weights."""

from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.step.replication import Replication
from cifar10.step.sync_replicas import Rendezvous, shared_counter


class OverFlag:
    """A shared flag that tells all replicas that training is over, even before its last step.

    Args:
      device: the device of the flag's variable, the same in all replicas.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        with tf.device(device):
            # An int64 scalar; every session of the chief sets it to 0.
            self.variable = shared_counter("training_over")

    def missing(self) -> tf.Tensor:
        """Returns the flag's name until the chief has initialised it, string [1], then [0]."""
        with tf.device(self._device):
            known = tf.raw_ops.VarIsInitializedOp(resource=self.variable.handle)
            return tf.boolean_mask(tf.constant(["training_over"]), [tf.logical_not(known)])

    def raised(self, rendezvous: Optional[Rendezvous]) -> tf.Operation:
        """Returns the op by which the chief raises the flag and wakes waiting replicas.

        Args:
          rendezvous: where synchronous replicas wait; None in asynchronous training.
        """
        with tf.device(self._device):
            raised = self.variable.assign(1)
            with tf.control_dependencies([raised]):
                return rendezvous.close_round() if rendezvous else raised.op


class SharedState:
    """State that replicas share besides the weights: the flag of the end, and the rendezvous.

    Args:
      replication: this process's place among those that train.
      averaged: the variables for which synchronous replicas average a value in each step, such as
        a gradient; each value has the shape of its variable.

    Attributes:
      is_chief: whether this process is the chief.
      over: the flag that training is over; None for a process that trains alone.
      rendezvous: where synchronous replicas meet; None otherwise.
    """

    def __init__(self, replication: Replication, averaged: Sequence[tf.Variable]) -> None:
        self.is_chief = replication.is_chief
        several = replication.num_replicas > 1
        self.over = OverFlag(replication.variable_devices[0]) if several else None
        self.rendezvous: Optional[Rendezvous] = None
        if replication.replicas_to_aggregate:
            self.rendezvous = Rendezvous(replication, averaged)

    def initializers(self) -> list[tf.Operation]:
        """Returns the ops by which the chief initialises the shared state."""
        found = [self.over.variable.initializer] if self.over else []
        return found + ([self.rendezvous.initializer] if self.rendezvous else [])

    def missing(self) -> list[tf.Tensor]:
        """Returns the names of what the chief has not initialised yet, string tensors [0] or [1].

        The other replicas wait until all of these tensors are empty.
        """
        found = [self.over.missing()] if self.over else []
        return found + ([self.rendezvous.missing()] if self.rendezvous else [])

    def end_all(self) -> Optional[tf.Operation]:
        """Returns the chief's op that ends the training of all replicas.

        It is None in other replicas, and in a process that trains alone.
        """
        return self.over.raised(self.rendezvous) if self.over and self.is_chief else None

    def chief_hooks(self) -> list[tf.train.SessionRunHook]:
        """Returns the chief's hooks; an empty list in other replicas."""
        return [self.rendezvous.hook()] if self.rendezvous and self.is_chief else []
