"""Weights in one flat vector, as training keeps them, in a piece a device.

A step reads it once, pushes one gradient and updates once, where a ResNet-44 has 131 weights: on a
parameter server a step costs a few transfers instead of hundreds, and a process alone gains too.
Checkpoints do not show it: `cifar10.step.saving` gives each slice the name that the variable would
have.
"""

import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.weights.spec import BIAS, EARLY, FIXED, KERNEL, MEAN, NORM, OFFSET, VARIANCE, Spec


class Section:
    """Specs whose values lie one after the other in a flat vector."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = tuple(specs)
        self.sizes = [spec.size for spec in self.specs]
        self.size = sum(self.sizes)

    def unpack(self, flat: tf.Tensor) -> dict[str, tf.Tensor]:
        """float32 [size] -> the values by name."""
        parts = tf.split(flat, self.sizes)
        return {spec.name: tf.reshape(part, spec.shape) for spec, part in zip(self.specs, parts)}

    def constant(self, value_of: Callable[[Spec], float]) -> tf.Tensor:
        """A number for each spec -> float32 [size], in which all values of a spec have its number.

        The graph's definition holds each number once, however many equal ones follow it.
        """
        runs = itertools.groupby(zip(map(value_of, self.specs), self.sizes), lambda pair: pair[0])
        parts = [
            tf.constant(value, tf.float32, [sum(size for _, size in run)]) for value, run in runs
        ]
        return tf.concat(parts, 0)

    def initial_value(self) -> tf.Tensor:
        """float32 [size]; each value is a function of the graph's seed and of its own name."""
        values = [_seeded(spec)(spec.shape, tf.float32) for spec in self.specs]
        return tf.concat([tf.reshape(value, [-1]) for value in values], 0)


def _seeded(spec: Spec) -> Any:
    """The spec's initializer, with a seed made from the variable's name.

    So no change elsewhere in the graph, such as one more replica, changes initial weights.
    """
    settings = spec.initializer.get_config()
    if "seed" in settings:
        settings["seed"] = zlib.crc32(spec.name.encode()) & 0x7FFFFFFF
    return type(spec.initializer).from_config(settings)


class Layout:
    """Where a model's weights and statistics lie in their flat vectors.

    Weights that decay or learn by the same rule lie together: first the kernels, then other
    weights, the offsets of normalisations, and last those that never decay and do not always train.

    Args:
      specs: what the model asked for.
      values_from_data: values that were made from the data, by name; they take the place of
        initializers.

    Attributes:
      weights: all weights.
      statistics: all moving means, then the variances of the same layers in the same order, as
        `towers.tower_moments` has them.
      kernels: specs of the kernels, which come first.
      has_early: whether some weights train in the first epochs only.
    """

    def __init__(
        self, specs: Sequence[Spec], values_from_data: Optional[Mapping[str, Any]] = None
    ) -> None:
        kinds = ((KERNEL,), (BIAS, NORM), (OFFSET,), (EARLY, FIXED))
        groups = [[spec for spec in specs if spec.kind in group] for group in kinds]
        self.weights = Section(
            [_with_first_value(spec, values_from_data or {}) for group in groups for spec in group]
        )
        self.kernels = groups[0]
        self.has_early = any(spec.kind == EARLY for spec in specs)
        means, variances = (
            {_layer(spec): spec for spec in specs if spec.kind == kind} for kind in (MEAN, VARIANCE)
        )
        if means.keys() != variances.keys():
            unpaired = ", ".join(sorted(means.keys() ^ variances.keys()))
            raise ValueError(
                "a normalisation has a moving mean and a moving variance in one scope, but one of "
                f"them is missing in {unpaired}"
            )
        self.statistics = Section([*means.values(), *(variances[layer] for layer in means)])


def _layer(spec: Spec) -> str:
    """The scope of the layer that asked for it."""
    return spec.name.rpartition("/")[0]


def _with_first_value(spec: Spec, values: Mapping[str, Any]) -> Spec:
    if spec.name not in values:
        return spec
    return spec._replace(initializer=tf.constant_initializer(values[spec.name]))


class FlatVariable:
    """A section's values, in one variable a device, of sizes that differ by one number at most.

    Args:
      name: of the variables, which are `name_0`, `name_1`, ...
      section: what lies where; an empty one has no pieces.
      devices: where the pieces live.
      trainable: whether they are weights.
    """

    def __init__(self, name: str, section: Section, devices: Sequence[str], trainable: bool):
        self.section = section
        count = min(len(devices), section.size)
        bounds = [section.size * index // max(1, count) for index in range(count + 1)]
        self._bounds = list(zip(bounds, bounds[1:]))
        initial: Any = section.initial_value() if count else None
        self.pieces = []
        for index, (start, end) in enumerate(self._bounds):
            with tf.device(devices[index]):
                self.pieces.append(
                    tf.get_variable(
                        f"{name}_{index}",
                        initializer=initial[start:end],
                        trainable=trainable,
                        use_resource=True,
                    )
                )

    def cut(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """[section.size] -> a part a piece."""
        if len(self._bounds) == 1:
            return [flat]
        return [flat[start:end] for start, end in self._bounds]

    def join(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """A part a piece -> [section.size]."""
        return tf.concat(parts, 0)

    def read(self, dtype: Any = tf.float32) -> list[tf.Tensor]:
        """Reads every piece once; what crosses to another machine has type `dtype`.

        Returns:
          float32, a part a piece.
        """
        parts = []
        for piece in self.pieces:
            with tf.device(piece.device):
                value = tf.cast(piece.read_value(), dtype)
            parts.append(tf.cast(value, tf.float32))
        return parts


class Slices:
    """A tower's weights: slices of its copy of the flat vector, where the copy is.

    Statistics are None. What is fixed has no gradient.

    Args:
      section: what lies where.
      flat: float32 [section.size].
    """

    def __init__(self, section: Section, flat: tf.Tensor) -> None:
        with tf.device(flat.device):
            self._values = section.unpack(flat)

    def get(self, spec: Spec) -> Any:
        """Returns the slice of that name."""
        value = self._values.get(spec.name)
        return tf.stop_gradient(value) if spec.kind == FIXED else value
