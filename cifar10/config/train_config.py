"""The frozen, validated configuration of a run. Standard library only."""

import dataclasses

from cifar10.config.checks import check_config
from cifar10.config.fields import ConfigFields


@dataclasses.dataclass(frozen=True)
class TrainConfig(ConfigFields):
    """The settings of a run, which have allowed values and do not contradict each other."""

    def __post_init__(self) -> None:
        """Checks the settings.

        Raises:
          ConfigError: a value is not allowed, or settings contradict each other.
        """
        check_config(self)
