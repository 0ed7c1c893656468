"""Momentum and Nesterov's momentum (Sutskever et al. 2013), by TensorFlow."""

import dataclasses
from typing import Any

from cifar10.config.settings import setting
from cifar10.optim.base import Optimizer


@dataclasses.dataclass(frozen=True)
class MomentumSettings:
    """The settings of optimizers with momentum."""

    momentum: float = setting(
        "momentum of momentum, nesterov and muon",
        0.9,
        group="training",
        common=True,
        at_least=0,
        below=1,
    )


class Momentum(Optimizer):
    """Momentum, or Nesterov's.

    Args:
      name: the value of `--optimizer`.
      nesterov: whether the gradient is taken ahead of the weights.
    """

    settings = MomentumSettings

    def __init__(self, name: str, nesterov: bool) -> None:
        self.name, self._nesterov = name, nesterov

    def build(self, config: Any, rate: Any, layout: Any) -> Any:
        """Makes TensorFlow's optimizer."""
        import tensorflow.compat.v1 as tf

        return tf.train.MomentumOptimizer(rate, config.momentum, use_nesterov=self._nesterov)


MOMENTUM, NESTEROV = Momentum("momentum", False), Momentum("nesterov", True)
