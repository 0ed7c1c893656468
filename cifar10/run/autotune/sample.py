"""A smaller step in place of the run's own, which compares settings as well, and sooner.

What decides between settings is how their ops share the cores, and a few layers of each kind, on a
few images a tower, show that.
"""

import dataclasses
import math
from collections.abc import Sequence

from cifar10.config.train_config import TrainConfig
from cifar10.step.cpu_setting import Setting

_LAYERS = 8  # of a ResNet: a block of each stage
_IMAGES_A_TOWER = 32


def small_step(config: TrainConfig, images: int) -> TrainConfig:
    """A step of the run, on the CPU, with so many images and as few layers as have all kinds."""
    layers = _LAYERS if config.is_resnet else config.num_layers
    return dataclasses.replace(config, num_layers=layers, train_batch_size=images, num_gpus=0)


def image_counts(batch: int, settings: Sequence[Setting]) -> list[int]:
    """How many images a step may have.

    Args:
      batch: the run's; each setting's towers divide it.
      settings: to be measured.

    Returns:
      Numbers that all towers divide, the smallest first, the whole batch last.
    """
    towers = [setting.num_towers for setting in settings]
    least, each = min(batch, _IMAGES_A_TOWER * max(towers)), math.lcm(*towers)
    return [count for count in range(each, batch + 1, each) if count >= least]
