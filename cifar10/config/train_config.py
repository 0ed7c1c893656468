"""The frozen, checked configuration of a run. Standard library only.

Checks that depend on the cluster are in `cifar10.cluster.resolve`.
"""

import dataclasses
import math
import os
import posixpath
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Optional

from cifar10 import models, optim
from cifar10.config import fields
from cifar10.config.settings import Setting, flag_name, settings_of, shown
from cifar10.errors import ConfigError
from cifar10_program.paths import is_opened_as_utf8

MOST_CHECKPOINTS = 500  # of a run without --checkpoint-steps
_WITH_CHECKPOINTS = ("output_dir", "checkpoint", "init_checkpoint")


class TrainingPosition(NamedTuple):
    """How far training has come, by which its last step is found.

    Attributes:
      step: the global step.
      examples_seen: the number of training images up to that step.
    """

    step: int = 0
    examples_seen: int = 0


START = TrainingPosition()


def needs_of(setting: Setting, value: Any) -> dict[str, Any]:
    """Returns what a value of a setting needs of others, as a row of `NEEDS`."""
    owners = {what: registry.owners(setting.name) for what, registry in fields.REGISTRIES.items()}
    found = {what: names for what, names in owners.items() if names}
    if setting.name == "optimizer" and optim.find(value).needs_normalised_kernels:
        found |= {**fields.NORMALISED, "model": "normalises_convolutions"}
    return {**found, **fields.NEEDS.get(setting.name, {}), **setting.needs}


def why_without_effect(
    setting: Setting, value: Any, values: Mapping[str, Any]
) -> Optional[tuple[str, str]]:
    """Says beside which other setting a value has no effect, and why; None if it has one.

    Args:
      setting: the setting.
      value: its value; false is never refused.
      values: the values of all settings, by name.

    Returns:
      The name of the other setting, and the end of a sentence about the value.
    """
    for other, fitting in {} if value is False else needs_of(setting, value).items():
        flag, got = flag_name(other), values[other]
        if fitting is True and not got:
            return other, f"has no effect beside {flag} {shown(got)}"
        if isinstance(fitting, str):
            fitting = fields.REGISTRIES[other].names_where(fitting)
        if fitting is not True and got not in fitting:
            return other, f"is for {flag} {' or '.join(fitting)}, got {flag} {got}"
    return None


@dataclasses.dataclass(frozen=True)
class TrainConfig(fields.ConfigFields):
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
        settings = settings_of(type(self))
        values = {name: getattr(self, name) for name in settings}
        for name, setting in settings.items():
            setting.check(values[name], flag_name(name))
            if setting.metavar in ("DIR", "PATH") and values[name] is not None:
                self._check_path(flag_name(name), values[name], name in _WITH_CHECKPOINTS)
        for name in filter(self.is_set, settings):
            if found := why_without_effect(settings[name], values[name], values):
                value = f"{flag_name(name)} {shown(values[name])}"
                raise ConfigError(f"{value} {found[1]}; {settings[name].instead}")
        if None not in (self.train_steps, self.train_epochs):
            both = f"--train-steps {self.train_steps} and --train-epochs {self.train_epochs}"
            raise ConfigError(f"{both} contradict each other; give one")
        if refusal := models.find(self.model).refusal(self):
            raise ConfigError(refusal)
        if self.mode == "predict" and not self.images:
            raise ConfigError("--mode predict needs image files: --mode predict cat.png dog.jpg")
        if self.mode != "predict" and self.images:
            got = f"{self.images[0]} with --mode {self.mode}"
            raise ConfigError(f"image files are for --mode predict, got {got}")
        if self.variable_strategy == "GPU" and self.num_gpus == 0:
            raise ConfigError("--variable-strategy GPU needs GPUs, but --num-gpus is 0")
        self.check_towers(self.num_towers or 1)

    def _check_path(self, flag: str, value: str, has_checkpoints: bool) -> None:
        """Raises ConfigError for a path that TensorFlow would not open, or not find again."""
        if not value:
            raise ConfigError(f"{flag} must not be empty; leave it out for the default")
        if "\0" in value:
            raise ConfigError(f"{flag} must not contain a NUL, got {value!r}")
        if not is_opened_as_utf8(os.path.expanduser(value)):
            rule = f"{flag} must be UTF-8, as TensorFlow's paths are"
            raise ConfigError(f"{rule}, got {value!r}; rename it, or set PYTHONUTF8=1")
        if has_checkpoints and {*"*?[\\"} & {*self.resolve(value)}:
            rule = f"{flag} must not contain *, ?, [ or \\, which TensorFlow takes for patterns"
            raise ConfigError(f"{rule}, got {self.resolve(value)}")

    def check_towers(self, num_towers: int) -> None:
        """Checks that the towers get equal parts of each training batch.

        Args:
          num_towers: the number of towers, of --num-towers or chosen for the machine.

        Raises:
          ConfigError: this is training, and its batch is no multiple of the towers.
        """
        if self.mode == "train_and_evaluate" and self.train_batch_size % num_towers:
            got = f"{self.train_batch_size} images for {num_towers} towers"
            raise ConfigError(f"--train-batch-size must be a multiple of the towers, got {got}")

    def is_set(self, name: str) -> bool:
        """Returns whether a setting is explicit, or differs from its default."""
        # A dataclass keeps the default as an attribute of the class.
        return name in self.explicit or bool(getattr(self, name) != getattr(type(self), name))

    def resolve(self, path: str) -> str:
        """Resolves `~` and, against --work-dir, a relative path; URLs stay unchanged.

        Shells leave the `~` of `--output-dir=~/a` to the program.
        """
        if "://" in path:
            return path
        return posixpath.join(os.path.expanduser(self.work_dir or ""), os.path.expanduser(path))

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
        return None if self.profile_steps is None else fields.window(self.profile_steps)

    def steps_between_rows(self, total_steps: int) -> int:
        """Returns the steps between rows of TensorBoard's curves: --summary-steps, or what fits.

        Args:
          total_steps: global step at which training ends.
        """
        return self.summary_steps or min(fields.MOST_SUMMARY_STEPS, math.ceil(total_steps / 100))

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
        self, num_examples: int, examples_per_step: int, position: TrainingPosition = START
    ) -> int:
        """Returns the global step at which training ends.

        Args:
          num_examples: number of training images.
          examples_per_step: training images in a global step.
          position: how far training had come; its steps may have had other numbers of images.
        """
        if self.train_epochs is None:
            return self.train_steps or fields.DEFAULT_TRAIN_STEPS
        left = self.train_epochs * num_examples - position.examples_seen
        steps = left / examples_per_step
        # Without rounding, 2.2 epochs of 45,000 images in batches of 100 would be
        # 990.0000000000001 steps, which `ceil` would raise to 991.
        return max(1, position.step + max(0, math.ceil(round(steps, 6))))
