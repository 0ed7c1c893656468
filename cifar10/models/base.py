"""The interface of a model: a network, and what the other modules need to know about it.

A network is a function that connects layers. It receives the layers as an argument
(`cifar10.ops.layers`), so it does not depend on devices, precision, layout, or how towers share
statistics. Its module also needs no TensorFlow, which takes seconds to load.
"""

import abc
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Callable, NamedTuple, Optional, Protocol

from cifar10.registry import Entry


class Layers(Protocol):
    """The layers of a network; images may be channels first. See `cifar10.ops.layers.Layers`.

    Attributes:
      num_classes: the number of classes, which is that of the logits.
    """

    num_classes: int

    def scope(self, name: str) -> AbstractContextManager[Any]:
        """Opens a variable scope: names of variables inside it begin with `name`."""

    def cast_images(self, images: Any) -> Any:
        """Converts images, float32 [N, 32, 32, 3], to the network's layout and type."""

    def cast(self, x: Any) -> Any:
        """Casts any tensor to the network's type; its layout stays the same."""

    def to_float32(self, x: Any) -> Any:
        """Casts any tensor to float32."""

    def flatten(self, x: Any) -> Any:
        """Reshapes a tensor [N, ...] to [N, features]."""

    def conv(
        self,
        x: Any,
        filters: int,
        kernel: int,
        strides: int = 1,
        *,
        initializer: Any = None,
        after_early: bool = False,
    ) -> Any:
        """Computes a convolution without bias, with `SAME` padding."""

    def whitening(self, x: Any, size: int) -> Any:
        """Projects each patch of size x size pixels onto principal components of such patches."""

    def dense(self, x: Any, units: int, *, initializer: Any = None, bias: bool = True) -> Any:
        """Computes a dense layer, [N, features] -> [N, units]."""

    def batch_norm(self, x: Any, scale: bool = True, *, first_scale: float = 1.0) -> Any:
        """Applies batch normalisation with offset."""

    def batch_norm_relu(self, x: Any, shortcut: Any = None, *, first_scale: float = 1.0) -> Any:
        """Applies batch normalisation, adds `shortcut`, and applies ReLU."""

    def relu(self, x: Any) -> Any:
        """Applies ReLU."""

    def gelu(self, x: Any) -> Any:
        """Applies GELU in its tanh form."""

    def max_pool(self, x: Any, size: int) -> Any:
        """Takes the maximum of size x size windows, stride `size`."""

    def average_pool(self, x: Any, size: int) -> Any:
        """Takes the mean of size x size windows, stride `size`."""

    def global_average_pool(self, x: Any) -> Any:
        """Averages images over all positions, to float32 [N, channels]."""

    def pad_channels(self, x: Any, filters: int) -> Any:
        """Adds zero channels, half on each side, up to `filters`."""

    def he(self, scale: float = 1.0) -> Any:
        """Returns He's initialiser of a kernel before a ReLU, times `scale`; `conv`'s default."""

    def partial_identity(self) -> Any:
        """Returns an initialiser whose first filters copy one input each; others are uniform."""

    def uniform(self) -> Any:
        """Returns the initialiser that is uniform between plus and minus 1 / sqrt(fan-in)."""


# A function: (Layers, standardised images float32 [N, 32, 32, 3]) -> logits float32 [N, classes].
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

    def in_force(self, config: Any) -> Mapping[str, Any]:
        """Returns all of the model's settings by name, with defaults."""
        return self.shape(config)

    def refusal(self, config: Any) -> Optional[str]:
        """Says in one line why these settings give no model; returns None if they do."""
        return None

    def first_values(self, sample: Callable[[int], Any]) -> Mapping[str, Any]:
        """Computes initial values from the data, arrays by the variable's name.

        Args:
          sample: a function that returns the given number of training images, or all if there are
            fewer; they are standardised, float32 [n, 32, 32, 3].
        """
        return {}
