"""Chooses the numbers of towers and threads on a CPU, with the standard library only."""

import dataclasses

from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name

# A tower with fewer images than this spends its time on the overhead of ops.
_MIN_IMAGES_A_TOWER = 8


@dataclasses.dataclass(frozen=True)
class Setting:
    """Numbers of towers and threads, named as in `TrainConfig`.

    With 0 threads, TensorFlow chooses their number.
    """

    num_towers: int
    num_inter_threads: int
    num_intra_threads: int

    def as_flags(self) -> list[str]:
        """Returns the command-line flags that give this setting."""
        values = dataclasses.asdict(self)
        return [f"{flag_name(name)}={value}" for name, value in values.items()]

    def __str__(self) -> str:
        return " ".join(self.as_flags())


def rule(config: TrainConfig, cores: int) -> Setting:
    """Chooses the towers and threads of a run; numbers that flags give are kept.

    By default there is one tower per core, and each op runs on one thread. Where there are fewer
    towers than cores, an op may use all cores.

    Args:
      config: the run's settings.
      cores: the number of CPU cores that the process may use.
    """
    towers = config.num_towers or _most_towers(config.train_batch_size, cores)
    inter, intra = config.num_inter_threads, config.num_intra_threads
    if intra is None:
        intra = 1 if towers >= cores else cores
    return Setting(towers, towers if inter is None else inter, intra)


def _most_towers(batch_size: int, cores: int) -> int:
    """Returns the most towers that divide the batch evenly and get enough images each.

    The result is at most one tower per core.
    """
    most = max(1, min(cores, batch_size // _MIN_IMAGES_A_TOWER))
    return max(count for count in range(1, most + 1) if batch_size % count == 0)
