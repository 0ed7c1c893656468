"""A multi-layer perceptron with one hidden layer, for tests of everything but convolutions."""

import dataclasses
import functools
from typing import Any, Optional

from cifar10.models.base import Layers, Model, Network, Rate
from cifar10.schema import NUM_CLASSES
from cifar10.settings import setting

_HIDDEN_UNITS = 100


@dataclasses.dataclass(frozen=True)
class MlpSettings:
    """The settings of an mlp alone."""

    hidden_units: Optional[int] = setting(
        None, f"hidden units of the mlp (default: {_HIDDEN_UNITS})", group="model", at_least=1
    )

    @property
    def units(self) -> int:
        """Hidden units, default included."""
        return _HIDDEN_UNITS if self.hidden_units is None else self.hidden_units


def mlp(layers: Layers, images: Any, hidden_units: int) -> Any:
    """Two dense layers with ReLU between.

    Args:
      layers: makes the layers.
      images: float32 [N, 32, 32, 3].
      hidden_units: width of the hidden layer.

    Returns:
      Logits float32 [N, 10].
    """
    x = layers.flatten(layers.cast(images))  # [N, 3072]
    x = layers.relu(layers.dense(x, hidden_units))
    return layers.dense(layers.to_float32(x), NUM_CLASSES)


class Mlp(Model):
    """The multi-layer perceptron."""

    name = "mlp"
    settings = MlpSettings
    convolves = normalises = False

    def title(self, config: Any) -> str:
        """E.g. `MLP, 100 hidden units`."""
        return f"MLP, {config.units} hidden units"

    def network(self, config: Any) -> Network:
        """`mlp` with this many hidden units."""
        return functools.partial(mlp, hidden_units=config.units)

    def rate(self, config: Any) -> Rate:
        """A tenth of a ResNet's, since it has no normalisation."""
        return Rate(0.01, 128, 0.02)

    def shape(self, config: Any) -> dict[str, Any]:
        """The hidden units."""
        return {"hidden_units": config.units}


MODEL = Mlp()
