"""One frozen, validated configuration. Standard library only."""

import dataclasses

from cifar10.config.checks import check_config
from cifar10.config.fields import ConfigFields


@dataclasses.dataclass(frozen=True)
class TrainConfig(ConfigFields):
    """Everything that decides a run: settings that are in range and do not contradict."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a value out of range and for settings that contradict."""
        check_config(self)
