"""The parameters of the model_fn: what it needs besides features and labels."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import NOTHING_DONE, Done, TrainConfig
from cifar10.input.records import CIFAR10_DEVIATION, CIFAR10_MEAN
from cifar10.ops.convolution import ConvAlgorithms
from cifar10.ops.layers import Layers
from cifar10.step.devices import DevicePlan
from cifar10.step.replication import Replication


@dataclasses.dataclass(frozen=True)
class ModelParams:
    """Settings, devices and facts about the data; Estimator passes them to the model_fn.

    Attributes:
      config: the run's settings.
      plan: this machine's devices.
      num_examples: the number of images in the training split.
      total_steps: the global step at which training ends.
      channel_mean: the mean of each channel over the training images, 3 numbers in [0, 255]. A new
        run standardises images by it and keeps it in its checkpoints; a run that continues,
        evaluation and export standardise them by what the checkpoint holds.
      channel_deviation: the standard deviation of each channel, 3 numbers; likewise.
      replication: this process's place among those that train; None: it trains alone.
      values_from_data: initial values that are computed from the training images or read from
        --init-checkpoint, arrays of the variables' shapes by variable name.
      augments_test: whether EVAL also measures the accuracy with test-time augmentation.
      done: the training before this process began, as far as it knows.
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
    done: Done = NOTHING_DONE

    @property
    def place(self) -> Replication:
        """`replication`; if that is None, the replication of a process that trains alone."""
        return self.replication or Replication.alone(self.plan)

    @property
    def examples_per_step(self) -> int:
        """The number of training images that all processes together use in one global step."""
        return self.place.examples_per_step(self.config.train_batch_size)

    @property
    def total_examples(self) -> int:
        """The number of training images that all processes have seen when training ends.

        The steps before this process began may have had other numbers of images.
        """
        steps_left = self.total_steps - self.done.step
        return self.done.examples_seen + steps_left * self.examples_per_step

    @property
    def total_epochs(self) -> float:
        """The number of epochs that all processes have trained when training ends."""
        return self.total_examples / self.num_examples

    def layers(self, *, training: bool) -> Layers:
        """Makes layers with these settings; `Layers.for_tower` copies them for each tower."""
        config, plan = self.config, self.plan
        algorithms = ConvAlgorithms(own=plan.own_kernels)
        if training and not plan.on_gpus:
            algorithms = dataclasses.replace(
                algorithms, pairs=plan.pairs, by_images=plan.compute_dtype == tf.bfloat16
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
