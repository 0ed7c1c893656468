"""The interface of a model: a network, and what the other modules need to know about it.

A network is a function that connects layers. It receives the layers as an argument
(`cifar10.ops.layers`), so it does not depend on devices, precision, layout, or how towers share
statistics. Its module also needs no TensorFlow, which takes seconds to load.
"""

import abc
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from cifar10.config.registry import Entry

# The layers of a network, a `cifar10.ops.layers.Layers`, whose module loads TensorFlow. Images in
# them may be channels first; `Layers.num_classes` is the number of logits.
Layers = Any
# A function: (Layers, normalized images float32 [N, 32, 32, 3]) -> logits float32 [N, classes].
Network = Callable[[Layers, Any], Any]


class Rate(NamedTuple):
    """A learning rate, and how it changes with the size and staleness of a step.

    Attributes:
      value: the learning rate.
      images: the number of images of the global step for which `value` is meant; the rate is
        proportional to a step's images. None: it is the same for all steps.
      most: the upper limit of the rate; None: there is none.
      most_stale: the upper limit if gradients are computed from weights that are one update old;
        for older weights, the limit is divided by their age in updates. None: `most` holds.
    """

    value: float
    images: Optional[int]
    most: Optional[float] = None
    most_stale: Optional[float] = None


class Model(Entry):
    """A model that `--model` can name.

    What reports, rates and files say of a model has no default here, so that none of it can be that
    of another network: a model that lacks it is refused by its name, by Python when it is made or
    by `check`.

    `config` is the run's `TrainConfig`, which includes the model's own settings.

    Attributes:
      convolves: whether the model has convolutions.
      normalises: whether the model has batch normalisation.
      normalises_convolutions: whether that follows each convolution, so that the norm of its kernel
        has no effect.
    """

    convolves: bool
    normalises: bool
    normalises_convolutions: bool

    @abc.abstractmethod
    def title(self, config: Any) -> str:
        """Returns the model's name for people, e.g. `ResNet-44 v1`."""

    @abc.abstractmethod
    def network(self, config: Any) -> Network:
        """Returns the network of these settings."""

    @abc.abstractmethod
    def rate(self, config: Any) -> Rate:
        """Returns the learning rate for momentum and Nesterov."""

    def warmup_share(self, config: Any) -> float:
        """Returns the share of the usual warm-up that the model needs."""
        return 1.0

    @abc.abstractmethod
    def shape(self, config: Any) -> Mapping[str, Any]:
        """Returns the settings that determine the model's variables, by name, with defaults."""

    def resolved(self, config: Any) -> Mapping[str, Any]:
        """Returns all of the model's settings by name, with defaults."""
        return self.shape(config)

    def refusal(self, config: Any) -> Optional[str]:
        """Says in one line why these settings give no model; returns None if they do."""
        return None

    def first_values(self, sample: Callable[[int], Any]) -> Mapping[str, Any]:
        """Computes initial values from the data, arrays by the variable's name.

        Args:
          sample: a function that returns the given number of training images, or all if there are
            fewer; they are normalized, float32 [n, 32, 32, 3].
        """
        return {}
