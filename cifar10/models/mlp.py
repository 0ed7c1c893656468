"""A multi-layer perceptron with one hidden layer, for tests of everything except convolutions."""

import dataclasses
import functools
from typing import Any, Optional

from cifar10.config.settings import setting
from cifar10.models.base import Layers, Model, Network, Rate
from cifar10.schema import CHANNELS, HEIGHT, WIDTH

_HIDDEN_UNITS = 100
# TensorFlow's shapes are int32 in the initialiser of the first layer's kernel.
_MOST = (2**31 - 1) // (HEIGHT * WIDTH * CHANNELS)


@dataclasses.dataclass(frozen=True)
class MlpSettings:
    """The settings that only the mlp has."""

    hidden_units: Optional[int] = setting(
        f"hidden units of the mlp (default: {_HIDDEN_UNITS})",
        group="model",
        at_least=1,
        at_most=_MOST,
    )

    @property
    def units(self) -> int:
        """The number of hidden units, by default 100."""
        return _HIDDEN_UNITS if self.hidden_units is None else self.hidden_units


def mlp(layers: Layers, images: Any, hidden_units: int) -> Any:
    """Builds two dense layers with a ReLU between them.

    Args:
      layers: the layers of the tower.
      images: normalized images, float32 [N, 32, 32, 3].
      hidden_units: the width of the hidden layer.

    Returns:
      Logits float32 [N, classes].
    """
    x = layers.flatten(layers.cast(images))  # [N, 3072]
    x = layers.relu(layers.dense(x, hidden_units))
    return layers.dense(layers.to_float32(x), layers.num_classes)


class Mlp(Model):
    """The multi-layer perceptron."""

    name = "mlp"
    settings = MlpSettings
    convolves = normalises = normalises_convolutions = False

    def title(self, config: Any) -> str:
        """Returns e.g. `MLP, 100 hidden units`."""
        return f"MLP, {config.units} hidden units"

    def network(self, config: Any) -> Network:
        """Returns the function `mlp` with its number of hidden units."""
        return functools.partial(mlp, hidden_units=config.units)

    def rate(self, config: Any) -> Rate:
        """Returns a tenth of a ResNet's learning rate, since the mlp has no normalisation."""
        return Rate(0.01, 128, 0.02)

    def shape(self, config: Any) -> dict[str, Any]:
        """Returns the number of hidden units."""
        return {"hidden_units": config.units}


MODEL = Mlp()
