"""ResNets for 32x32 images: 6n+2 layers, three stages of 16, 32 and 64 filters, basic blocks.

v1: He et al. 2015, arXiv:1512.03385, section 4.2, with parameter-free shortcuts (option A).
v2: He et al. 2016, arXiv:1603.05027: normalisation and ReLU before each convolution.
"""

import dataclasses
import functools
from typing import Any, Callable, Optional

from cifar10.config.settings import setting
from cifar10.models.base import Layers, Model, Network, Rate

STAGE_FILTERS = (16, 32, 64)
Block = Callable[[Layers, Any, int, int, float], Any]

_DEPTHS = "6n+2 (8, 14, 20, 32, 44, ...)"
_NUM_LAYERS = 44
# Deeper networks have a larger curvature: with gradients that are one update old, ResNet-44 learns
# best at .02 or less, but ResNet-8 still does at .1.
_MOST_STALE_BY_LAYERS = 0.02 * 44
# A ResNet of fewer layers needs less warm-up, in proportion.
_LAYERS_OF_WARMUP = 44


@dataclasses.dataclass(frozen=True)
class ResNetSettings:
    """The settings that only ResNets have."""

    num_layers: Optional[int] = setting(
        f"layers of a resnet, 6n+2 (default: {_NUM_LAYERS})", group="model", common=True
    )
    residual_scale: Optional[float] = setting(
        "first scale of what each block of a resnet adds to its shortcut (default: 1 / the square "
        "root of the blocks of a stage)",
        group="model",
        at_least=0,
    )

    @property
    def layers(self) -> int:
        """The number of layers, by default 44."""
        return _NUM_LAYERS if self.num_layers is None else self.num_layers

    @property
    def block_scale(self) -> float:
        """`residual_scale`, by default 1 / the square root of a stage's number of blocks.

        With the default, activations do not grow with depth (Hayou et al. 2021, arXiv:2010.12859);
        in the ResNet articles the scale is 1.
        """
        if self.residual_scale is not None:
            return self.residual_scale
        return float((self.layers // 6) ** -0.5)


def _shortcut(layers: Layers, x: Any, filters: int, strides: int) -> Any:
    """Returns `x`, or where the shape changes, `x` average-pooled and padded by zero channels."""
    if strides == 1:
        return x
    return layers.pad_channels(layers.average_pool(x, strides), filters)


def _block_v1(layers: Layers, x: Any, filters: int, strides: int, scale: float) -> Any:
    y = layers.conv_norm_relu(x, filters, 3, strides)
    shortcut = _shortcut(layers, x, filters, strides)
    return layers.conv_norm_relu(y, filters, 3, shortcut=shortcut, first_scale=scale)


def _block_v2(layers: Layers, x: Any, filters: int, strides: int, scale: float) -> Any:
    y = layers.batch_norm_relu(x)
    y = layers.conv_norm_relu(y, filters, 3, strides)
    y = layers.conv(y, filters, 3, initializer=layers.he(scale))
    return y + _shortcut(layers, x, filters, strides)


def _resnet(layers: Layers, images: Any, num_layers: int, block: Block, scale: float) -> Any:
    """Builds a ResNet.

    Args:
      layers: the layers of the tower.
      images: normalized images, float32 [N, 32, 32, 3].
      num_layers: the number of layers, 6n+2, for n blocks per stage.
      block: `_block_v1` or `_block_v2`, which normalises its input, so that the head normalises,
        too, and the stem does not.
      scale: the initial factor of what each block adds to its shortcut; the block's last scale (v1)
        or kernel (v2) contains it.

    Returns:
      Logits float32 [N, classes].
    """
    preactivation = block is _block_v2
    with layers.scope("stem"):
        stem = layers.conv if preactivation else layers.conv_norm_relu
        x = stem(layers.cast_images(images), STAGE_FILTERS[0], 3)  # [N, 32, 32, 16]
    # [N, 32, 32, 16], [N, 16, 16, 32], [N, 8, 8, 64]
    for stage, filters in enumerate(STAGE_FILTERS):
        for index in range(num_layers // 6):
            with layers.scope(f"stage_{stage}/block_{index}"):
                strides = 2 if stage and not index else 1
                x = block(layers, x, filters, strides, scale)
    with layers.scope("head"):
        if preactivation:
            x = layers.batch_norm_relu(x)
        x = layers.global_average_pool(x)  # float32 [N, 64]
        return layers.dense(x, layers.num_classes)


class ResNet(Model):
    """ResNets of version 1 or 2.

    Args:
      name: the value of `--model`.
      version: the version's name for people.
      block: `_block_v1` or `_block_v2`.
    """

    settings = ResNetSettings
    convolves = normalises = True

    def __init__(self, name: str, version: str, block: Block) -> None:
        self.name, self._version = name, version
        # A block of version 2 adds the output of its last convolution to the shortcut as it is.
        self.normalises_convolutions = block is _block_v1
        self._build = functools.partial(_resnet, block=block)

    def title(self, config: Any) -> str:
        """Returns e.g. `ResNet-44 v1`."""
        return f"ResNet-{config.layers} {self._version}"

    def network(self, config: Any) -> Network:
        """Returns the ResNet of this depth."""
        return functools.partial(self._build, num_layers=config.layers, scale=config.block_scale)

    def rate(self, config: Any) -> Rate:
        """Returns 0.1 for 128 images (He et al. 2015, arXiv:1512.03385, section 4.2)."""
        return Rate(0.1, 128, 0.8, _MOST_STALE_BY_LAYERS / config.layers)

    def warmup_share(self, config: Any) -> float:
        """Returns a share in proportion to the number of layers, at most 1."""
        return min(1.0, float(config.layers) / _LAYERS_OF_WARMUP)

    def shape(self, config: Any) -> dict[str, Any]:
        """Returns the number of layers."""
        return {"num_layers": config.layers}

    def resolved(self, config: Any) -> dict[str, Any]:
        """Returns the number of layers and the initial scale of the blocks."""
        return {**self.shape(config), "residual_scale": config.block_scale}

    def refusal(self, config: Any) -> Optional[str]:
        """Refuses depths that basic blocks cannot give."""
        if config.layers >= 8 and config.layers % 6 == 2:
            return None
        return f"--num-layers must be {_DEPTHS}, got {config.layers}"


V1 = ResNet("resnet", "v1", _block_v1)
V2 = ResNet("resnet_v2", "v2", _block_v2)
