"""What the model_fn needs beside features and labels."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input.records import CIFAR10_DEVIATION, CIFAR10_MEAN
from cifar10.ops.convolution import ConvAlgorithms
from cifar10.ops.layers import Layers
from cifar10.step.devices import DevicePlan
from cifar10.step.replication import Replication


@dataclasses.dataclass(frozen=True)
class ModelParams:
    """Settings, devices and facts about the data; Estimator hands them to the model_fn.

    Attributes:
      config: the run's settings.
      plan: this machine's devices.
      num_examples: images in the training split.
      total_steps: global step at which training ends.
      channel_mean: of the training images; kept in the checkpoint for evaluation and export.
      channel_deviation: likewise.
      replication: this process's place among those that train; None: it trains alone.
      values_from_data: first values that are made from the training images, by variable.
      augments_test: in EVAL, also answers to each image mirrored and shifted.
    """

    config: TrainConfig
    plan: DevicePlan
    num_examples: int = 1
    total_steps: int = 1
    channel_mean: tuple[float, ...] = CIFAR10_MEAN
    channel_deviation: tuple[float, ...] = CIFAR10_DEVIATION
    replication: Optional[Replication] = None
    values_from_data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    augments_test: bool = False

    @property
    def place(self) -> Replication:
        """The replication; that of a process alone where none is given."""
        return self.replication or Replication.alone(self.plan)

    @property
    def examples_per_step(self) -> int:
        """Training images that one global step stands for."""
        return self.place.examples_per_step(self.config.train_batch_size)

    def layers(self, *, training: bool) -> Layers:
        """The layers of these settings; `Layers.for_tower` makes those of each tower."""
        config, plan = self.config, self.plan
        algorithms = ConvAlgorithms()
        if training and not plan.on_gpus:
            is_bf16 = plan.compute_dtype == tf.bfloat16
            algorithms = ConvAlgorithms(
                own=plan.own_kernels,
                # A CPU's bfloat16 is twice as fast, so Winograd's form must save more to pay.
                winograd_saving=5.0 if is_bf16 else 1.0,
                by_images=is_bf16,
            )
        return Layers(
            training=training,
            data_format=plan.data_format,
            compute_dtype=plan.compute_dtype,
            norm=config.batch_norm,
            norm_decay=config.batch_norm_decay,
            norm_epsilon=config.batch_norm_epsilon,
            algorithms=algorithms,
        )
