"""A process's place among those that train together, and how they share a step.

Asynchronous: each replica reads the weights, pushes its gradient, and the parameter servers apply
it at once. Synchronous: see `cifar10.step.sync_replicas`. In-graph: one process builds the towers
of all machines.
"""

import dataclasses
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.step.devices import DevicePlan


@dataclasses.dataclass(frozen=True)
class Replication:
    """A training process's place among those that train together; alone, it is the only one.

    Attributes:
      variable_devices: where the pieces of the weights live; counters live on the first.
      tower_devices: of this process's towers, on other machines too when it is in-graph.
      task_device: this process's job and task, empty when it is alone.
      num_machines: machines that this process has towers on.
      num_replicas: processes that train.
      replica: which of them this is; replica 0 is the chief.
      replicas_to_aggregate: gradients that a synchronous update waits for; None: asynchronous.
      transfer_dtype: of weights and gradients between machines.
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
        """One process on one machine."""
        return cls(plan.variable_devices, plan.tower_devices)

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises, saves and, when synchronous, updates."""
        return self.replica == 0

    @property
    def staleness(self) -> int:
        """About how many updates of others come between reading the weights and updating them."""
        return 0 if self.replicas_to_aggregate else self.num_replicas - 1

    def batch_size(self, train_batch_size: int) -> int:
        """Images that this process takes a step; the flag counts those of a machine."""
        return train_batch_size * self.num_machines

    def examples_per_step(self, train_batch_size: int) -> int:
        """Images that one global step stands for."""
        return self.batch_size(train_batch_size) * (self.replicas_to_aggregate or 1)
