"""What a layer asks for when it needs a variable, and what answers."""

import math
from typing import Any, NamedTuple, Protocol

import tensorflow.compat.v1 as tf

# Kinds of weights, which decay and rates tell apart. OFFSET: that of a normalisation; NORM: its
# scale; EARLY: trains in the first epochs only; FIXED: made from the data before training.
KERNEL, BIAS, NORM, OFFSET, EARLY, FIXED = "kernel", "bias", "norm", "offset", "early", "fixed"
# The moving statistics of a normalisation, which are no weights.
MEAN, VARIANCE = "mean", "variance"
TRAINABLE = (KERNEL, BIAS, NORM, OFFSET, EARLY)


class Spec(NamedTuple):
    """What a layer asks for."""

    name: str  # with all scopes
    shape: tuple[int, ...]
    initializer: Any
    kind: str  # KERNEL, BIAS, NORM, OFFSET, EARLY or FIXED; MEAN or VARIANCE of statistics

    @property
    def size(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


class VariableSource(Protocol):
    """Where `Layers` gets its variables from."""

    def get(self, spec: Spec) -> Any:
        """Returns a weight's value as a float32 tensor, or that of statistics, or None for them."""


class Recorder:
    """Records what a model asks for, in a graph that nobody will run."""

    def __init__(self) -> None:
        self.specs: list[Spec] = []

    def get(self, spec: Spec) -> tf.Tensor:
        """Notes the spec and returns zeros."""
        self.specs.append(spec)
        return tf.zeros(spec.shape)
