"""Specs, by which layers request variables, what provides them, and initialisers of kernels."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow.compat.v1 as tf

# Kinds of weights, on which weight decay and learning rates depend. OFFSET: the offset of a
# normalisation; NORM: its scale; TRAINED_UNTIL: a bias that trains in the first epochs only;
# NON_TRAINABLE: computed from the data before training.
KERNEL, BIAS, NORM, OFFSET = "kernel", "bias", "norm", "offset"
TRAINED_UNTIL, NON_TRAINABLE = "trained until", "non-trainable"
# Kinds of moving statistics of a normalisation, which are not weights.
MEAN, VARIANCE = "mean", "variance"
TRAINABLE = (KERNEL, BIAS, NORM, OFFSET, TRAINED_UNTIL)
# All kinds of weights; those that decay and learn by the same rule are together.
BY_RULE = ((KERNEL,), (BIAS, NORM), (OFFSET,), (TRAINED_UNTIL, NON_TRAINABLE))


class Spec(NamedTuple):
    """A layer's request for a variable."""

    name: str  # the full name, with all scopes
    shape: tuple[int, ...]
    initializer: Any
    kind: str  # of weights, such as KERNEL, or of statistics, MEAN or VARIANCE

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
        request = (spec.name.rsplit("/", 1)[-1], spec.shape, tf.float32, spec.initializer)
        is_weight = spec.kind in TRAINABLE
        with tf.device(self._device):
            variable = tf.get_variable(*request, trainable=is_weight, use_resource=True)
        if spec.name not in self._reads:
            with tf.device(variable.device):
                self._reads[spec.name] = variable.read_value()
        return self._reads[spec.name]


def he(scale: float = 1.0) -> Any:
    """Returns He's initialiser of a kernel before a ReLU (arXiv:1502.01852), times `scale`."""
    if scale == 0:
        return tf.zeros_initializer()
    return tf.variance_scaling_initializer(2.0 * scale**2, "fan_in", "truncated_normal")


class PartialIdentity(tf.variance_scaling_initializer):
    """Initialises a kernel so that its first filters copy one input each; the others vary."""

    def __call__(self, shape: Sequence[int], dtype: Any = tf.float32) -> Any:
        """Returns a kernel of the given shape, [height, width, inputs, filters]."""
        height, width, inputs, filters = shape
        passed = min(inputs, filters)
        around = [(side // 2, side - 1 - side // 2) for side in (height, width)]
        identity = tf.pad(tf.eye(inputs, passed)[None, None], [*around, (0, 0), (0, 0)])
        return tf.concat([identity, super().__call__(shape, dtype)[..., passed:]], axis=3)


def partial_identity() -> Any:
    """Returns the partial identity whose other filters are those of `uniform`."""
    return PartialIdentity(1 / 3, "fan_in", "uniform")


def uniform() -> Any:
    """Returns the initialiser that is uniform between plus and minus 1 / sqrt(fan-in)."""
    return tf.variance_scaling_initializer(1 / 3, "fan_in", "uniform")
