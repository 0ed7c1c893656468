"""fastnet: a whitened, ResNet-9-like network that learns in ten epochs.

The network of airbench94 (Jordan 2024, arXiv:2404.00498, section 3): a fixed 2x2 convolution that
whitens patches, three groups of two 3x3 convolutions, batch normalisation without scale, GELU, and
a head whose logits are divided by nine. Two million weights, 0.71 GFLOP a training image.
"""

import dataclasses
from typing import Any, Callable

from cifar10.models.base import Layers, Model, Network, Rate
from cifar10.schema import NUM_CLASSES
from cifar10.settings import setting

WHITENING_SIZE = 2
GROUP_FILTERS = (64, 256, 256)
_LOGIT_FACTOR = 1 / 9


@dataclasses.dataclass(frozen=True)
class FastnetSettings:
    """The settings that only fastnet has."""

    whitening_bias_epochs: float = setting(
        3.0, "epochs that the bias of fastnet's first layer trains", group="model", at_least=0
    )


def fastnet(layers: Layers, images: Any) -> Any:
    """Builds the network.

    Args:
      layers: the layers of the tower.
      images: standardised images, float32 [N, 32, 32, 3].

    Returns:
      Logits float32 [N, 10].
    """
    x = layers.gelu(layers.whitening(layers.cast_images(images), WHITENING_SIZE))  # [N, 31, 31, 24]
    for group, filters in enumerate(
        GROUP_FILTERS
    ):  # [N, 15, 15, 64], [.. 7, 7, 256], [.. 3, 3, ..]
        with layers.scope(f"group_{group}"):
            x = layers.conv(
                x, filters, 3, initializer=layers.partial_identity(), after_early=group == 0
            )
            x = layers.gelu(layers.batch_norm(layers.max_pool(x, 2), scale=False))
            x = layers.conv(x, filters, 3, initializer=layers.partial_identity())
            x = layers.gelu(layers.batch_norm(x, scale=False))
    with layers.scope("head"):
        x = layers.flatten(layers.to_float32(layers.max_pool(x, 3)))  # [N, 256]
        head = layers.dense(x, NUM_CLASSES, initializer=layers.uniform(), bias=False)
        return _LOGIT_FACTOR * head


class Fastnet(Model):
    """fastnet, whose first layer is computed from the training images' principal components."""

    name = "fastnet"
    settings = FastnetSettings
    convolves = normalises = True

    def title(self, config: Any) -> str:
        """Returns the name, since there is only one size."""
        return self.name

    def network(self, config: Any) -> Network:
        """Returns the function `fastnet`."""
        return fastnet

    def rate(self, config: Any) -> Rate:
        """Returns a ResNet's learning rate, with an upper limit for asynchronous training."""
        return Rate(0.1, 128, 0.8, 0.02)

    def shape(self, config: Any) -> dict[str, Any]:
        """Returns nothing, since there is only one size."""
        return {}

    def first_values(self, sample: Callable[[int], Any]) -> dict[str, Any]:
        """Computes the projection of the first layer."""
        from cifar10.models import whitening  # Imported here, since --help needs no NumPy.

        images = sample(whitening.SAMPLE)
        return {whitening.PROJECTION: whitening.whitening_projection(images, WHITENING_SIZE)}


MODEL = Fastnet()
