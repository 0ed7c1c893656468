"""fastnet: a whitened, ResNet-9-like network that learns in ten epochs, and a larger one.

The networks of airbench94 and airbench96 (Jordan 2024, arXiv:2404.00498): a fixed 2x2 convolution
that whitens patches, three groups of 3x3 convolutions, each followed by batch normalisation without
scale and GELU, and a head whose logits are divided by nine. fastnet has two million weights and
0.71 GFLOP a training image; fastnet_large has ten million and 2.71 GFLOP.
"""

import dataclasses
import functools
from typing import Any, Callable

from cifar10.config.settings import setting
from cifar10.models.base import Layers, Model, Network, Rate
from cifar10.schema import CHANNELS

WHITENING_SIZE = 2
PROJECTION = "model/whitening/projection"
SAMPLE = 5_000  # images: more do not change the components
_LEAST_EIGENVALUE = 5e-4  # added to each, which limits how much a component is amplified
_LOGIT_FACTOR = 1 / 9


@dataclasses.dataclass(frozen=True)
class FastnetSettings:
    """The settings that only fastnet has."""

    whitening_bias_epochs: float = setting(
        "epochs that the bias of fastnet's first layer trains", 3.0, group="model", at_least=0
    )


def fastnet(
    layers: Layers, images: Any, group_filters: tuple[int, int, int], group_layers: int
) -> Any:
    """Builds the network.

    Args:
      layers: the layers of the tower.
      images: normalized images, float32 [N, 32, 32, 3].
      group_filters: the filters of the convolutions of each group.
      group_layers: the number of convolutions of a group. If there are more than two, a shortcut
        passes all but the first.

    Returns:
      Logits float32 [N, classes].
    """
    x = layers.gelu(layers.whitening(layers.cast_images(images), WHITENING_SIZE))  # [N, 31, 31, 24]
    for group, filters in enumerate(group_filters):  # [N, 15, 15, ..], [N, 7, 7, ..], [N, 3, 3, ..]
        with layers.scope(f"group_{group}"):
            x = layers.conv(
                x, filters, 3, initializer=layers.partial_identity(), after_trained_until=group == 0
            )
            x = first = layers.gelu(layers.batch_norm(layers.max_pool(x, 2), scale=False))
            for layer in range(2, group_layers + 1):
                x = layers.conv(x, filters, 3, initializer=layers.partial_identity())
                x = layers.batch_norm(x, scale=False)
                if layer == group_layers > 2:
                    x += first
                x = layers.gelu(x)
    with layers.scope("head"):
        x = layers.flatten(layers.to_float32(layers.max_pool(x, 3)))  # [N, filters]
        head = layers.dense(x, layers.num_classes, initializer=layers.uniform(), bias=False)
        return _LOGIT_FACTOR * head


def whitening_projection(images: Any, size: int) -> Any:
    """Computes the first layer: the kernel whose outputs are uncorrelated, of variance about 1.

    Its filters are the principal components of the training images' patches. As in airbench94
    (Jordan 2024, arXiv:2404.00498, section 3.2), each is divided by the square root of its
    eigenvalue. Each is used twice, once with either sign, since the following activation passes
    only one sign.

    Args:
      images: normalized images, float32 [N, height, width, 3].
      size: the side of a patch, in pixels.

    Returns:
      float32 [size, size, 3, 2 * size * size * 3]: the components by decreasing eigenvalue, then
      their negatives.
    """
    import numpy as np  # Imported here, since --help needs no NumPy.

    windows = np.lib.stride_tricks.sliding_window_view(images, (1, size, size, CHANNELS))
    patches = windows.reshape(-1, size * size * CHANNELS)
    eigenvalues, components = np.linalg.eigh(patches.T @ patches / np.float32(len(patches)))
    scaled = (components / np.sqrt(eigenvalues + _LEAST_EIGENVALUE))[:, ::-1]
    kernel = np.concatenate([scaled, -scaled], axis=1).astype(np.float32)
    return kernel.reshape(size, size, CHANNELS, -1)


class Fastnet(Model):
    """fastnet, whose first layer is computed from the training images' principal components.

    Args:
      name: the value of `--model`.
      group_filters: see `fastnet`.
      group_layers: see `fastnet`.
    """

    settings = FastnetSettings
    convolves = normalises = normalises_convolutions = True

    def __init__(self, name: str, group_filters: tuple[int, int, int], group_layers: int) -> None:
        self.name = name
        self._build = functools.partial(
            fastnet, group_filters=group_filters, group_layers=group_layers
        )

    def title(self, config: Any) -> str:
        """Returns the name, since each size has its own."""
        return self.name

    def network(self, config: Any) -> Network:
        """Returns the network of this size."""
        return self._build

    def rate(self, config: Any) -> Rate:
        """Returns a ResNet's learning rate, with an upper limit for asynchronous training."""
        return Rate(0.1, 128, 0.8, 0.02)

    def shape(self, config: Any) -> dict[str, Any]:
        """Returns nothing, since the name determines the variables."""
        return {}

    def first_values(self, sample: Callable[[int], Any]) -> dict[str, Any]:
        """Computes the projection of the first layer."""
        return {PROJECTION: whitening_projection(sample(SAMPLE), WHITENING_SIZE)}


SMALL = Fastnet("fastnet", (64, 256, 256), 2)
LARGE = Fastnet("fastnet_large", (128, 384, 512), 3)
