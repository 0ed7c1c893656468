"""How a CPU's cores are used: towers, and threads. Standard library only."""

import dataclasses

from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name

# A tower with fewer images than this spends its time on the overhead of ops.
_MIN_IMAGES_A_TOWER = 8


@dataclasses.dataclass(frozen=True)
class Setting:
    """Towers and threads, named as in TrainConfig; 0 threads: TensorFlow chooses."""

    num_towers: int
    num_inter_threads: int
    num_intra_threads: int

    def as_flags(self) -> list[str]:
        """The flags that set it."""
        values = dataclasses.asdict(self)
        return [f"{flag_name(name)}={value}" for name, value in values.items()]

    def __str__(self) -> str:
        return " ".join(self.as_flags())


def rule(config: TrainConfig, cores: int) -> Setting:
    """The setting of a run; what a flag says is left as it is.

    A tower a core, each op on its tower's core; fewer towers share the cores.

    Args:
      config: the run's settings.
      cores: that the process may use.
    """
    towers = config.num_towers or _most_towers(config.train_batch_size, cores)
    inter, intra = config.num_inter_threads, config.num_intra_threads
    if intra is None:
        intra = 1 if towers >= cores else cores
    return Setting(towers, towers if inter is None else inter, intra)


def _most_towers(batch_size: int, cores: int) -> int:
    """A tower a core, if that divides the batch and leaves each enough images."""
    most = max(1, min(cores, batch_size // _MIN_IMAGES_A_TOWER))
    return max(count for count in range(1, most + 1) if batch_size % count == 0)
