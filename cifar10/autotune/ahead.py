"""Starts --autotune's child processes early. Standard library only.

TensorFlow takes seconds to load, there and here: that goes on at the same time.
"""

import contextlib
from collections.abc import Iterator
from typing import Optional

from cifar10.autotune.children import ChildError, Children
from cifar10.autotune.place import may_be_known
from cifar10.config import TrainConfig
from cifar10.stopping import StopRequest


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
    if config.autotune and not may_be_known(config):
        with contextlib.suppress(ChildError):
            children = Children(stop)
    with children or contextlib.nullcontext():
        yield children
