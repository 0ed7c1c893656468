"""The parameters of the model_fn: what it needs besides features and labels.

Several processes may train together. Asynchronous: each replica reads the weights and pushes its
gradient, and the parameter servers apply it at once. Synchronous: see
`cifar10.step.sync_replicas`. In-graph: one process builds the towers of all machines.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import PS, Cluster
from cifar10.config.train_config import START, TrainConfig, TrainingPosition
from cifar10.input.records import CIFAR10_MEAN, CIFAR10_STD
from cifar10.ops.layers import Layers
from cifar10.ops.operations import CUSTOM_OPS, CUSTOM_OPS_BF16_DOTS
from cifar10.schema import NUM_CLASSES
from cifar10.step.devices import DevicePlan


@dataclasses.dataclass(frozen=True)
class Replication:
    """What a training process is among the processes that train together.

    Attributes:
      variable_devices: the devices of the shards of the weights; counters are on the first one.
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
    def of(cls, config: TrainConfig, cluster: Optional[Cluster], plan: DevicePlan) -> "Replication":
        """Returns the replication of a trainer; `plan` has its machine's devices.

        In-graph, every machine has as many towers as the chief's, on the same kind of device.
        Without a cluster, the process trains alone.
        """
        if cluster is None:
            return cls(plan.variable_devices, plan.tower_devices)
        in_graph = config.replication == "in-graph"
        machines = cluster.trainers if in_graph else [cluster.own]
        holders = cluster.of(PS) or [cluster.master]
        return cls(
            variable_devices=tuple(f"{task.device}/device:CPU:0" for task in holders),
            tower_devices=tuple(
                f"{task.device}{tower}" for task in machines for tower in plan.tower_devices
            ),
            task_device=cluster.own.device,
            num_machines=len(machines),
            num_replicas=1 if in_graph else cluster.num_trainers,
            replica=cluster.trainers.index(cluster.own),
            replicas_to_aggregate=replicas_to_aggregate(config, cluster),
            transfer_dtype=tf.bfloat16 if config.ps_transfer == "bf16" else tf.float32,
        )

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises, saves and, in synchronous training, updates."""
        return self.replica == 0

    @property
    def staleness(self) -> int:
        """About how many updates others apply between this process's read and its update."""
        return 0 if self.replicas_to_aggregate else self.num_replicas - 1


def replicas_to_aggregate(config: TrainConfig, cluster: Cluster) -> Optional[int]:
    """Returns how many replicas' gradients an update waits for; None: it waits for no other.

    It is None in asynchronous and in-graph training, and for a single trainer.
    """
    if not config.sync or config.replication == "in-graph" or cluster.num_trainers == 1:
        return None
    return config.replicas_to_aggregate or cluster.num_trainers


@dataclasses.dataclass(frozen=True)
class ModelParams:
    """Settings, devices and facts about the data; Estimator passes them to the model_fn.

    Attributes:
      config: the run's settings.
      plan: this machine's devices.
      num_examples: the number of images in the training split.
      total_steps: the global step at which training ends.
      channels: the mean of each channel over the training images, 3 numbers in [0, 255], and the
        standard deviation of each. A new run normalizes images by them and keeps them in its
        checkpoints; a run that continues, evaluation and export use what the checkpoint holds.
      replication: what this process is among those that train; None: it trains alone.
      values_from_data: initial values that are computed from the training images or read from
        --init-checkpoint, arrays of the variables' shapes by variable name.
      num_classes: the number of classes.
      augments_test: whether EVAL also measures the accuracy with test-time augmentation.
      position: how far training had come when this process began, as far as it knows.
    """

    config: TrainConfig
    plan: DevicePlan
    num_examples: int = 1
    total_steps: int = 1
    channels: tuple[tuple[float, ...], tuple[float, ...]] = (CIFAR10_MEAN, CIFAR10_STD)
    replication: Replication = None  # type: ignore[assignment]  # __post_init__ replaces it.
    values_from_data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    augments_test: bool = False
    num_classes: int = NUM_CLASSES
    position: TrainingPosition = START

    def __post_init__(self) -> None:
        """Without a replication, this process trains alone."""
        if self.replication is None:
            alone = Replication.of(self.config, None, self.plan)
            object.__setattr__(self, "replication", alone)

    @property
    def batch_size(self) -> int:
        """The number of training images that this process uses per step."""
        return self.config.train_batch_size * self.replication.num_machines

    @property
    def examples_per_step(self) -> int:
        """The number of training images that all processes together use in one global step."""
        return self.batch_size * (self.replication.replicas_to_aggregate or 1)

    @property
    def own_examples(self) -> Optional[int]:
        """The number of images that this process uses per step; None if it trains alone."""
        return self.batch_size if self.replication.num_replicas > 1 else None

    @property
    def total_examples(self) -> int:
        """The number of training images that all processes have seen when training ends.

        The steps before this process began may have had other numbers of images.
        """
        steps_left = self.total_steps - self.position.step
        return self.position.examples_seen + steps_left * self.examples_per_step

    @property
    def total_epochs(self) -> float:
        """The number of epochs that all processes have trained when training ends."""
        return self.total_examples / self.num_examples

    def layers(self, *, training: bool) -> Layers:
        """Makes layers with these settings; `Layers.for_tower` copies them for each tower."""
        config, plan = self.config, self.plan
        kernels = plan.kernels if training or plan.kernels != CUSTOM_OPS_BF16_DOTS else CUSTOM_OPS
        return Layers(
            training=training,
            num_classes=self.num_classes,
            data_format=plan.data_format,
            compute_dtype=plan.compute_dtype,
            norm=config.batch_norm,
            norm_epsilon=config.batch_norm_epsilon,
            kernels=kernels,
        )
