"""Specs, by which layers request variables, and what provides them."""

import math
from typing import Any, NamedTuple, Protocol

import tensorflow.compat.v1 as tf

# Kinds of weights, on which weight decay and learning rates depend. OFFSET: the offset of a
# normalisation; NORM: its scale; EARLY: a bias that trains in the first epochs only; FIXED:
# computed from the data before training.
KERNEL, BIAS, NORM, OFFSET, EARLY, FIXED = "kernel", "bias", "norm", "offset", "early", "fixed"
# Kinds of moving statistics of a normalisation, which are not weights.
MEAN, VARIANCE = "mean", "variance"
TRAINABLE = (KERNEL, BIAS, NORM, OFFSET, EARLY)


class Spec(NamedTuple):
    """A layer's request for a variable."""

    name: str  # the full name, with all scopes
    shape: tuple[int, ...]
    initializer: Any
    kind: str  # KERNEL, BIAS, NORM, OFFSET, EARLY or FIXED; MEAN or VARIANCE of statistics

    @property
    def size(self) -> int:
        """The number of values in the variable."""
        return math.prod(self.shape)


class VariableSource(Protocol):
    """Where `Layers` gets its variables from."""

    def get(self, spec: Spec) -> Any:
        """Returns the value of a weight or statistic, a float32 tensor; a statistic may be None."""


class Recorder:
    """Records the specs that a model requests, in a graph that is never run."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []

    def get(self, spec: Spec) -> tf.Tensor:
        """Records the spec and returns zeros of its shape."""
        self.specs.append(spec)
        return tf.zeros(spec.shape)


class SeparateVariables:
    """One variable per weight, as evaluation, prediction and export store them, read once.

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
