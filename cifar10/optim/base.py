"""The interface of an optimizer: an update rule, its settings, and what it needs."""

import abc
from typing import Any

from cifar10.config.registry import Entry
from cifar10.models.base import Rate


class Optimizer(Entry):
    """An update rule that `--optimizer` can name.

    Its module needs no TensorFlow, which takes seconds to load; `build` imports it.

    Attributes:
      follows_scale: whether a step is proportional to the gradient, so that a factor of a weight's
        gradient is one of its rate.
      decouples_decay: whether weights decay by themselves, not by a term of the gradient.
      needs_normalised_kernels: whether only models can be trained that normalise after each
        convolution.
      updates_at_once: whether an update reads all weights, which no other process may change
        meanwhile.
    """

    follows_scale: bool = True
    decouples_decay: bool = False
    needs_normalised_kernels: bool = False
    updates_at_once: bool = False

    @abc.abstractmethod
    def build(self, config: Any, rate: Any, layout: Any) -> Any:
        """Makes the tf.compat.v1.train.Optimizer of a training step.

        Args:
          config: the run's `TrainConfig`, which includes the optimizer's own settings.
          rate: the learning rate, a scalar tensor.
          layout: the positions of the weights in the flat vector, a `packed.Layout`.
        """

    def rate(self, of_model: Rate) -> Rate:
        """Returns the learning rate unless --learning-rate is set.

        Args:
          of_model: the rate that fits the model with momentum or Nesterov.
        """
        return of_model

    def decays(self, spec: Any) -> bool:
        """Returns whether weight decay applies to a kernel, whose `variables.Spec` is given."""
        return True
