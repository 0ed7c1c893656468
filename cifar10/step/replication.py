"""Describes how several processes train together, and which of them this process is.

Asynchronous: each replica reads the weights and pushes its gradient, and the parameter servers
apply it at once. Synchronous: see `cifar10.step.sync_replicas`. In-graph: one process builds the
towers of all machines.
"""

import dataclasses
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.step.devices import DevicePlan


@dataclasses.dataclass(frozen=True)
class Replication:
    """The place of a training process among the processes that train together.

    Attributes:
      variable_devices: the devices of the pieces of the weights; counters are on the first one.
      tower_devices: the devices of this process's towers; in-graph, on other machines too.
      task_device: this process's job and task; empty for a process that trains alone.
      num_machines: the number of machines on which this process has towers.
      num_replicas: the number of processes that train.
      replica: the index of this process among them; replica 0 is the chief.
      replicas_to_aggregate: the number of replicas whose gradients a synchronous update waits for;
        None: no update waits for another process.
      transfer_dtype: the type in which weights and gradients are sent between machines.
    """

    variable_devices: tuple[str, ...]
    tower_devices: tuple[str, ...]
    task_device: str = ""
    num_machines: int = 1
    num_replicas: int = 1
    replica: int = 0
    replicas_to_aggregate: Optional[int] = None
    transfer_dtype: tf.DType = tf.float32

    @classmethod
    def alone(cls, plan: DevicePlan) -> "Replication":
        """Returns the replication of a process that trains alone."""
        return cls(plan.variable_devices, plan.tower_devices)

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises, saves and, in synchronous training, updates."""
        return self.replica == 0

    @property
    def staleness(self) -> int:
        """About how many updates others apply between this process's read and its update."""
        return 0 if self.replicas_to_aggregate else self.num_replicas - 1

    def batch_size(self, train_batch_size: int) -> int:
        """Returns the number of images that this process uses per step.

        Args:
          train_batch_size: the number of images per machine, as `--train-batch-size` gives it.
        """
        return train_batch_size * self.num_machines

    def examples_per_step(self, train_batch_size: int) -> int:
        """Returns the number of images that all processes together use in one global step.

        Args:
          train_batch_size: the number of images per machine, as `--train-batch-size` gives it.
        """
        return self.batch_size(train_batch_size) * (self.replicas_to_aggregate or 1)
