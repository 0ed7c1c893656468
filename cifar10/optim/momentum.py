"""Momentum, Nesterov's momentum (Sutskever et al. 2013) and Adam, by TensorFlow."""

import dataclasses
from typing import Any

from cifar10.config.settings import setting
from cifar10.models.base import Rate
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


class Adam(Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter, arXiv:1711.05101)."""

    name = "adam"
    follows_scale = False
    decouples_decay = True

    def build(self, config: Any, rate: Any, layout: Any) -> Any:
        """Makes TensorFlow's optimizer."""
        import tensorflow.compat.v1 as tf

        return tf.train.AdamOptimizer(rate)

    def rate(self, of_model: Rate) -> Rate:
        """Returns one rate for all batches: the noise of small ones does not lengthen a step."""
        return Rate(0.001, None)
