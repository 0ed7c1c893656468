"""fastnet: a whitened, ResNet-9-like network that learns in ten epochs.

The network of airbench94 (Jordan 2024, arXiv:2404.00498, section 3): a fixed 2x2 convolution that
whitens patches, three groups of two 3x3 convolutions, batch normalisation without scale, GELU, and
a head whose logits are divided by nine. Two million weights, 0.71 GFLOP a training image.
"""

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.models.layers import Layers
from cifar10.schema import NUM_CLASSES

WHITENING_SIZE = 2
GROUP_FILTERS = (64, 256, 256)
_LOGIT_FACTOR = 1 / 9


class PartialIdentity:
    """As many filters as there are inputs pass the inputs on; the others are uniform.

    Args:
      seed: of the others.
    """

    def __init__(self, seed: Optional[int] = None) -> None:
        self._seed = seed

    def __call__(self, shape: Sequence[int], dtype: Any = tf.float32) -> Any:
        """Returns a kernel, [height, width, inputs, filters]."""
        height, width, inputs, filters = shape
        passed = min(inputs, filters)
        around = [(side // 2, side - 1 - side // 2) for side in (height, width)]
        identity = tf.pad(tf.eye(inputs, passed)[None, None], [*around, (0, 0), (0, 0)])
        return tf.concat([identity, _uniform(self._seed)(shape, dtype)[..., passed:]], axis=3)

    def get_config(self) -> dict[str, Any]:
        """What makes the same one again."""
        return {"seed": self._seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PartialIdentity":
        """Makes one from `get_config`."""
        return cls(**config)


def _uniform(seed: Optional[int] = None) -> Any:
    """Between plus and minus 1 / sqrt(fan in)."""
    return tf.variance_scaling_initializer(1 / 3, "fan_in", "uniform", seed=seed)


def fastnet(layers: Layers, images: Any) -> Any:
    """Builds the network.

    Args:
      layers: makes the layers.
      images: float32 [N, 32, 32, 3].

    Returns:
      Logits float32 [N, 10].
    """
    x = layers.gelu(layers.whitening(layers.cast_images(images), WHITENING_SIZE))  # [N, 31, 31, 24]
    for group, filters in enumerate(
        GROUP_FILTERS
    ):  # [N, 15, 15, 64], [.. 7, 7, 256], [.. 3, 3, ..]
        with tf.variable_scope(f"group_{group}"):
            x = layers.conv(x, filters, 3, initializer=PartialIdentity(), after_early=group == 0)
            x = layers.gelu(layers.batch_norm(layers.max_pool(x, 2), scale=False))
            x = layers.conv(x, filters, 3, initializer=PartialIdentity())
            x = layers.gelu(layers.batch_norm(x, scale=False))
    with tf.variable_scope("head"):
        x = tf.cast(layers.max_pool(x, 3), tf.float32)  # [N, 1, 1, 256]
        x = tf.reshape(x, [-1, GROUP_FILTERS[-1]])
        return _LOGIT_FACTOR * layers.dense(x, NUM_CLASSES, initializer=_uniform(), bias=False)
