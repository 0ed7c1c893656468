"""One variable per weight, as evaluation, prediction and export store them."""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.weights.spec import TRAINABLE, Spec


class SeparateVariables:
    """One variable per weight, read once for all towers.

    Args:
      device: the device of the variables, or a device function; None: TensorFlow chooses it.
    """

    def __init__(self, device: Any = None) -> None:
        self._device = device
        self._reads: dict[str, tf.Tensor] = {}

    def get(self, spec: Spec) -> Any:
        """Makes or reuses a variable, a weight or a statistic, and returns its value."""
        with tf.device(self._device):
            variable = tf.get_variable(
                spec.name.rsplit("/", 1)[-1],
                spec.shape,
                tf.float32,
                spec.initializer,
                trainable=spec.kind in TRAINABLE,
                use_resource=True,
            )
        if spec.name not in self._reads:
            with tf.device(variable.device):
                self._reads[spec.name] = variable.read_value()
        return self._reads[spec.name]
