"""The frozen, validated configuration of a run. Standard library only."""

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

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

    def with_given(self, names: Iterable[str]) -> "TrainConfig":
        """Returns a copy that knows which settings the command line gives.

        Args:
          names: names of these settings.

        Raises:
          ConfigError: a setting is given that has no meaning beside the others.
        """
        config = copy.copy(self)
        object.__setattr__(config, "given", frozenset(names))
        check_config(config)
        return config

    def with_settings(self, **settings: Any) -> "TrainConfig":
        """Returns a copy with other values of some settings.

        Raises:
          ConfigError: a value is not allowed, or settings contradict each other.
        """
        return dataclasses.replace(self, **settings).with_given(self.given)
