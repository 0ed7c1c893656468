"""Initialisers of kernels, with TensorFlow's interface: (shape, dtype) -> a tensor."""

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf


def he(scale: float = 1.0) -> Any:
    """Returns He's initialiser of a kernel before a ReLU (arXiv:1502.01852), times `scale`."""
    if scale == 0:
        return tf.zeros_initializer()
    return tf.variance_scaling_initializer(2.0 * scale**2, "fan_in", "truncated_normal")


class PartialIdentity:
    """Initialises a kernel so that its first filters copy one input each; the others are uniform.

    Args:
      seed: the seed of the other filters.
    """

    def __init__(self, seed: Optional[int] = None) -> None:
        self._seed = seed

    def __call__(self, shape: Sequence[int], dtype: Any = tf.float32) -> Any:
        """Returns a kernel of the given shape, [height, width, inputs, filters]."""
        height, width, inputs, filters = shape
        passed = min(inputs, filters)
        around = [(side // 2, side - 1 - side // 2) for side in (height, width)]
        identity = tf.pad(tf.eye(inputs, passed)[None, None], [*around, (0, 0), (0, 0)])
        return tf.concat([identity, uniform(self._seed)(shape, dtype)[..., passed:]], axis=3)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that make an equal initialiser."""
        return {"seed": self._seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PartialIdentity":
        """Makes an initialiser from the result of `get_config`."""
        return cls(**config)


def uniform(seed: Optional[int] = None) -> Any:
    """Returns the initialiser that is uniform between plus and minus 1 / sqrt(fan-in)."""
    return tf.variance_scaling_initializer(1 / 3, "fan_in", "uniform", seed=seed)
