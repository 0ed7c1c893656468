"""The frozen, checked configuration of a run. Standard library only."""

import dataclasses
import math
import posixpath
from collections.abc import Collection
from typing import Any, NamedTuple, Optional

from cifar10 import models
from cifar10.config.checks import check_config
from cifar10.config.fields import DEFAULT_TRAIN_STEPS, MOST_SUMMARY_STEPS, ConfigFields

MOST_CHECKPOINTS = 500  # of a run without --checkpoint-steps


class TrainingPosition(NamedTuple):
    """How far training has come, by which its last step is found.

    Attributes:
      step: the global step.
      examples_seen: the number of training images up to that step.
    """

    step: int = 0
    examples_seen: int = 0


START = TrainingPosition()


@dataclasses.dataclass(frozen=True)
class TrainConfig(ConfigFields):
    """The settings of a run, which have allowed values and do not contradict each other.

    A subclass may have more settings; `cifar10.main.main` takes it.

    Attributes:
      explicit: names of the settings that the command line or its file has, whatever their values.
        It is no setting: two configurations with the same settings are equal.

    Raises:
      ConfigError: a value is not allowed, a setting has no effect beside the others,
        or settings contradict each other.
    """

    explicit: dataclasses.InitVar[Collection[str]] = frozenset()

    def __post_init__(self, explicit: Collection[str]) -> None:
        """Checks the settings."""
        object.__setattr__(self, "explicit", frozenset(explicit))
        check_config(self, self.is_set)

    def with_settings(self, **settings: Any) -> "TrainConfig":
        """Returns a copy with other values of some settings.

        Raises:
          ConfigError: a value is not allowed, or settings contradict each other.
        """
        return dataclasses.replace(self, **settings)

    def is_set(self, name: str) -> bool:
        """Returns whether a setting is explicit, or differs from its default."""
        default = getattr(type(self), name)  # A dataclass keeps it as an attribute of the class.
        return name in self.explicit or bool(getattr(self, name) != default)

    @property
    def model_title(self) -> str:
        """The model's name as users read it, e.g. `ResNet-44 v1`."""
        return models.find(self.model).title(self)

    @property
    def data_path(self) -> str:
        """The path of --data-dir, resolved against --work-dir."""
        return self.resolve(self.data_dir)

    @property
    def output_path(self) -> str:
        """The path of --output-dir, resolved against --work-dir."""
        return self.resolve(self.output_dir)

    @property
    def checkpoint_path(self) -> Optional[str]:
        """The path of --checkpoint, resolved against --work-dir; None if it is unset."""
        return None if self.checkpoint is None else self.resolve(self.checkpoint)

    @property
    def log_path(self) -> str:
        """The path of --log-dir, resolved against --work-dir; --output-dir's if it is unset."""
        return self.output_path if self.log_dir is None else self.resolve(self.log_dir)

    def log_folder(self, split: str) -> str:
        """Returns the folder for TensorBoard's events of a split, after which a run is named."""
        return posixpath.join(self.log_path, split)

    @property
    def profile_window(self) -> Optional[tuple[int, int]]:
        """The first and the last step of --profile-steps; None if it is unset."""
        if self.profile_steps is None:
            return None
        first, _, last = self.profile_steps.partition(":")
        return int(first), int(last)

    def steps_between_rows(self, total_steps: int) -> int:
        """Returns the steps between rows of TensorBoard's curves: --summary-steps, or what fits.

        Args:
          total_steps: global step at which training ends.
        """
        return self.summary_steps or min(MOST_SUMMARY_STEPS, math.ceil(total_steps / 100))

    def steps_between_checkpoints(self, total_steps: int, total_epochs: float) -> int:
        """Returns the steps between checkpoints: --checkpoint-steps, by default about an epoch.

        The default divides the run into about equal parts, one per epoch, but MOST_CHECKPOINTS at
        most: epochs of few images take less time than a checkpoint and its validation.

        Args:
          total_steps: global step at which training ends.
          total_epochs: number of epochs that training has at its end.
        """
        parts = min(max(1, round(total_epochs)), MOST_CHECKPOINTS)
        return self.checkpoint_steps or math.ceil(total_steps / parts)

    def total_steps(
        self,
        num_examples: int,
        examples_per_step: Optional[int] = None,
        position: TrainingPosition = START,
    ) -> int:
        """Returns the global step at which training ends.

        Args:
          num_examples: number of training images.
          examples_per_step: training images in a global step; None: --train-batch-size.
          position: how far training had come; its steps may have had other numbers of images.
        """
        if self.train_epochs is None:
            return self.train_steps or DEFAULT_TRAIN_STEPS
        left = self.train_epochs * num_examples - position.examples_seen
        steps = left / (examples_per_step or self.train_batch_size)
        # Without rounding, 2.2 epochs of 45,000 images in batches of 100 would be
        # 990.0000000000001 steps, which `ceil` would raise to 991.
        return max(1, position.step + max(0, math.ceil(round(steps, 6))))
