"""What a model is: a network, and all that the rest has to know of it.

A network is a function that says which layers follow each other. It is made of the layers that it
is handed (`cifar10.ops.layers`), so that it knows nothing of devices, precision, layout, or how
towers share statistics; and so its module needs no TensorFlow, which takes seconds to load.
"""

import abc
import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Callable, NamedTuple, Optional, Protocol


class Layers(Protocol):
    """What a network is made of; images may be channels first. See `cifar10.ops.layers.Layers`."""

    def scope(self, name: str) -> AbstractContextManager[Any]:
        """Variables inside have names that begin with this one."""

    def cast_images(self, images: Any) -> Any:
        """float32 [N, 32, 32, 3] -> the layout and type that images have in the network."""

    def cast(self, x: Any) -> Any:
        """Any tensor -> the type that tensors have in the network; its layout stays."""

    def to_float32(self, x: Any) -> Any:
        """Any tensor -> float32."""

    def flatten(self, x: Any) -> Any:
        """[N, ...] -> [N, features]."""

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
        """Convolution without bias, `SAME` padding."""

    def whitening(self, x: Any, size: int) -> Any:
        """Projects each patch of size x size pixels on principal components of such patches."""

    def dense(self, x: Any, units: int, *, initializer: Any = None, bias: bool = True) -> Any:
        """[N, features] -> [N, units]."""

    def batch_norm(self, x: Any, scale: bool = True, *, first_scale: float = 1.0) -> Any:
        """Batch normalisation with offset."""

    def relu(self, x: Any) -> Any:
        """ReLU."""

    def gelu(self, x: Any) -> Any:
        """GELU, its tanh form."""

    def max_pool(self, x: Any, size: int) -> Any:
        """Largest of size x size windows, stride `size`."""

    def average_pool(self, x: Any, size: int) -> Any:
        """Means over size x size windows, stride `size`."""

    def global_average_pool(self, x: Any) -> Any:
        """Images -> float32 [N, channels]."""

    def pad_channels(self, x: Any, filters: int) -> Any:
        """Adds zero channels, half on each side, up to `filters`."""

    def he(self, scale: float = 1.0) -> Any:
        """Initialiser of a kernel before a ReLU, times `scale`; what `conv` has by default."""

    def partial_identity(self) -> Any:
        """Initialiser: as many filters as there are inputs pass the inputs on."""

    def uniform(self) -> Any:
        """Initialiser: between plus and minus 1 / sqrt(fan in)."""


# Layers, images float32 [N, 32, 32, 3], standardised -> logits float32 [N, 10].
Network = Callable[[Layers, Any], Any]


class Rate(NamedTuple):
    """A learning rate and the steps that it is for.

    Attributes:
      value: the learning rate.
      images: of the global step that it is for; None: it is the same for all.
      most: its upper limit; None: it has none.
      most_stale: its upper limit where gradients are of weights that are one update old; for older
        weights, the limit is divided by their age in updates.
    """

    value: float
    images: Optional[int]
    most: Optional[float] = None
    most_stale: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """The settings of a model that has none of its own."""


class Model(abc.ABC):
    """A model that `--model` can name. The defaults here fit a convolutional network.

    `config` is the run's `TrainConfig`, which has the model's own settings, too.

    Attributes:
      name: the value of `--model`.
      settings: a dataclass of the settings that it has and other models have not; a base class of
        `TrainConfig`.
      convolves: it has convolutions.
      normalises: it has batch normalisation.
    """

    name: str
    settings: type = NoSettings
    convolves = True
    normalises = True

    @abc.abstractmethod
    def title(self, config: Any) -> str:
        """Its name for people, e.g. `ResNet-44 v1`."""

    @abc.abstractmethod
    def network(self, config: Any) -> Network:
        """The network of these settings."""

    def rate(self, config: Any) -> Rate:
        """The learning rate that fits momentum and Nesterov; by default that of ResNets."""
        return Rate(0.1, 128, 0.8)

    def warmup_share(self, config: Any) -> float:
        """The share of the usual warm-up that it needs."""
        return 1.0

    def shape(self, config: Any) -> Mapping[str, Any]:
        """The settings that decide which variables it has, by name, defaults included."""
        return {}

    def in_force(self, config: Any) -> Mapping[str, Any]:
        """All its settings by name, defaults included."""
        return self.shape(config)

    def refusal(self, config: Any) -> Optional[str]:
        """Why it cannot be built with these settings, in one line for people; None: it can."""
        return None

    def first_values(self, sample: Callable[[int], Any]) -> Mapping[str, Any]:
        """Initial values that are made from the data: arrays by the variable's name.

        Args:
          sample: that many of the training images, or all there are; standardised, float32
            [n, 32, 32, 3].
        """
        return {}
