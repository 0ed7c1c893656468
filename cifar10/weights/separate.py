"""Weights that are a variable each: in evaluation, prediction and export."""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.weights.spec import TRAINABLE, Spec


class SeparateVariables:
    """One variable a weight, read once whatever the number of towers.

    Args:
      device: where they live, or a device function; None: on the tower's device.
    """

    def __init__(self, device: Any = None) -> None:
        self._device = device
        self._reads: dict[str, tf.Tensor] = {}

    def get(self, spec: Spec) -> Any:
        """Makes or reuses a variable and returns its value, statistics too."""
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
