"""What the replicas of a cluster share beside the weights: the end of training, a meeting place."""

from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.step.replication import Replication
from cifar10.step.sync_replicas import Rendezvous, shared_counter


class OverFlag:
    """Says to all replicas that training is over, also before its last step.

    Args:
      device: where it lives, the same for all.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        with tf.device(device):
            # Every session of the chief lowers it.
            self.variable = shared_counter("training_over")

    def missing(self) -> tf.Tensor:
        """Its name as long as the chief has not lowered it; string [n]."""
        with tf.device(self._device):
            known = tf.raw_ops.VarIsInitializedOp(resource=self.variable.handle)
            return tf.boolean_mask(tf.constant(["training_over"]), [tf.logical_not(known)])

    def raised(self, rendezvous: Optional[Rendezvous]) -> tf.Operation:
        """The chief's op that says so; whoever waits in a round goes on.

        Args:
          rendezvous: where synchronous replicas wait.
        """
        with tf.device(self._device):
            raised = self.variable.assign(1)
            with tf.control_dependencies([raised]):
                return rendezvous.close_round() if rendezvous else raised.op


class SharedState:
    """What the replicas of a cluster share beside the weights: the end, and their meeting place.

    Args:
      replication: this process's place.
      averaged: variables of which synchronous replicas average something in each step.

    Attributes:
      over: says that training is over; None for a process that trains alone.
      rendezvous: where synchronous replicas meet; None for others.
    """

    def __init__(self, replication: Replication, averaged: Sequence[tf.Variable]) -> None:
        self.is_chief = replication.is_chief
        several = replication.num_replicas > 1
        self.over = OverFlag(replication.variable_devices[0]) if several else None
        self.rendezvous: Optional[Rendezvous] = None
        if replication.replicas_to_aggregate:
            self.rendezvous = Rendezvous(replication, averaged)

    def initializers(self) -> list[tf.Operation]:
        """For the chief: ops that set everything anew."""
        found = [self.over.variable.initializer] if self.over else []
        return found + ([self.rendezvous.initializer] if self.rendezvous else [])

    def missing(self) -> list[tf.Tensor]:
        """For the others: names of what the chief has not set yet; strings [n]."""
        found = [self.over.missing()] if self.over else []
        return found + ([self.rendezvous.missing()] if self.rendezvous else [])

    def end_all(self) -> Optional[tf.Operation]:
        """The chief's op that ends the training of all replicas; None for a process alone."""
        return self.over.raised(self.rendezvous) if self.over and self.is_chief else None

    def chief_hooks(self) -> list[tf.train.SessionRunHook]:
        """The chief's hooks; none for the others."""
        return [self.rendezvous.hook()] if self.rendezvous and self.is_chief else []
