"""Specs, by which layers request variables, and the interface of what provides them."""

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
