"""What kernels start from, as TensorFlow's initialisers are: (shape, dtype) -> a tensor."""

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf


def he(scale: float = 1.0) -> Any:
    """He's initialisation of a kernel before a ReLU (arXiv:1502.01852), times `scale`."""
    if scale == 0:
        return tf.zeros_initializer()
    return tf.variance_scaling_initializer(2.0 * scale**2, "fan_in", "truncated_normal")


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
        return tf.concat([identity, uniform(self._seed)(shape, dtype)[..., passed:]], axis=3)

    def get_config(self) -> dict[str, Any]:
        """What makes the same one again."""
        return {"seed": self._seed}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PartialIdentity":
        """Makes one from `get_config`."""
        return cls(**config)


def uniform(seed: Optional[int] = None) -> Any:
    """Between plus and minus 1 / sqrt(fan in)."""
    return tf.variance_scaling_initializer(1 / 3, "fan_in", "uniform", seed=seed)
