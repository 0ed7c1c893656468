"""Starts --autotune's child processes early. Standard library only.

TensorFlow takes seconds to load, there and here: that goes on at the same time, and they prepare
what will be asked of them by all that can be known so far.
"""

import contextlib
from collections.abc import Iterator
from typing import Optional

from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import count_cores
from cifar10.host.signals import StopRequest
from cifar10.run.autotune.candidates import candidates
from cifar10.run.autotune.children import ChildError, Children
from cifar10.run.autotune.place import may_be_known
from cifar10.run.autotune.sample import image_counts, small_step
from cifar10.step.cpu_setting import rule


@contextlib.contextmanager
def children_ahead(config: TrainConfig, stop: StopRequest) -> Iterator[Optional[Children]]:
    """The child processes, if --autotune will need them by all that can be known so far.

    Args:
      config: the settings.
      stop: says whether a signal came.

    Yields:
      None where they are not needed, or cannot be started: who needs them tries again, and says
      why.
    """
    children = None
    steps = _steps(config)
    if steps:
        with contextlib.suppress(ChildError):
            children = Children(stop)
            children.begin(steps)
    with children or contextlib.nullcontext():
        yield children


def _steps(config: TrainConfig) -> list[TrainConfig]:
    """What will be timed first; nothing where that is remembered, or will not be timed."""
    if not config.autotune or may_be_known(config):
        return []
    cores = count_cores()
    settings = candidates(config, rule(config, cores), cores)
    if len(settings) == 1:
        return []
    step = small_step(config, image_counts(config.train_batch_size, settings)[0])
    return [setting.applied(step) for setting in settings]
