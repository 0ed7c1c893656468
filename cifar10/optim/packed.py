"""Weights in one flat vector, as training stores them, in one shard per device.

A step reads the vector once, pushes one gradient and makes one update, although a ResNet-44 has 131
weights. So a step with a parameter server needs a few transfers instead of hundreds, and a process
that trains alone is faster, too. Checkpoints do not depend on it: `cifar10.step.state` saves each
slice under the name of the layer's variable.
"""

import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, TypeVar

import tensorflow.compat.v1 as tf

from cifar10.ops.variables import BY_RULE, MEAN, NON_TRAINABLE, TRAINED_UNTIL, VARIANCE, Spec

T = TypeVar("T")
_SLOT = "momentum"
# A function: (weights, gradient, slot) -> (new weights, new slot), each float32 [size].
Update = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class Section:
    """The specs of variables whose values are stored one after the other in a flat vector."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs = tuple(specs)
        self.sizes = [spec.size for spec in self.specs]
        self.size = sum(self.sizes)

    def unpack(self, flat: tf.Tensor) -> dict[str, tf.Tensor]:
        """Splits a flat vector, float32 [size], into the variables' values by name."""
        parts = tf.split(flat, self.sizes)
        return {spec.name: tf.reshape(part, spec.shape) for spec, part in zip(self.specs, parts)}

    def runs(self, value_of: Callable[[Spec], T]) -> list[tuple[T, int]]:
        """Returns each run of specs of which `value_of` says the same: that, and the run's size."""
        runs = itertools.groupby(zip(map(value_of, self.specs), self.sizes), lambda pair: pair[0])
        return [(value, sum(size for _, size in run)) for value, run in runs]

    def constant(self, value_of: Callable[[Spec], float]) -> tf.Tensor:
        """Returns float32 [size], in which all values of a spec equal `value_of(spec)`.

        The graph's definition stores each run of equal numbers as one number.
        """
        parts = [tf.constant(value, tf.float32, [size]) for value, size in self.runs(value_of)]
        return tf.concat(parts, 0)

    def initial_value(self) -> tf.Tensor:
        """Returns initial values, float32 [size], which depend on the graph's seed and on names."""
        values = []
        for spec in self.specs:
            settings = spec.initializer.get_config()
            # From the name, so that a change elsewhere in the graph, such as one more replica, does
            # not change initial weights.
            if "seed" in settings:
                settings["seed"] = zlib.crc32(spec.name.encode()) & 0x7FFFFFFF
            value = type(spec.initializer).from_config(settings)(spec.shape, tf.float32)
            values.append(tf.reshape(value, [-1]))
        return tf.concat(values, 0)


class Layout:
    """The positions of a model's weights and statistics in their flat vectors.

    Weights that decay or learn by the same rule are adjacent: first the kernels, then biases and
    scales, then the offsets of normalisations, and last the weights that never decay and do not
    always train.

    Args:
      specs: the specs of the variables that the model requests.
      values_from_data: initial values computed from the data or read from a checkpoint, arrays of
        the variables' shapes by variable name; they replace initializers.

    Attributes:
      weights: all weights.
      statistics: all moving means, then the moving variances of the same layers in the same order,
        as in `towers.tower_moments`.
      kernels: the specs of the kernels, which come first.
      has_trained_until: whether some weights train in the first epochs only.
    """

    def __init__(self, specs: Sequence[Spec], values_from_data: Mapping[str, Any]) -> None:
        specs = [
            spec._replace(initializer=tf.constant_initializer(values_from_data[spec.name]))
            if spec.name in values_from_data
            else spec
            for spec in specs
        ]
        self.kernels, *others = ([spec for spec in specs if spec.kind in rule] for rule in BY_RULE)
        self.weights = Section(sum(others, self.kernels))
        self.has_trained_until = any(spec.kind == TRAINED_UNTIL for spec in specs)
        means, variances = (
            {spec.name.rpartition("/")[0]: spec for spec in specs if spec.kind == kind}
            for kind in (MEAN, VARIANCE)
        )
        if means.keys() != variances.keys():
            unpaired = ", ".join(sorted(means.keys() ^ variances.keys()))
            raise ValueError(
                "a normalisation has a moving mean and a moving variance in one scope, but one of "
                f"them is missing in {unpaired}"
            )
        self.statistics = Section([*means.values(), *(variances[layer] for layer in means)])


class FlatVariable:
    """A section's values in one variable per device, whose sizes differ by at most one number.

    Args:
      name: the common part of the variables' names, `name_0`, `name_1`, ...
      section: the specs of the values; an empty section has no shards.
      devices: the devices of the shards.
      trainable: whether the values are weights.

    Attributes:
      section: the argument `section`.
      shards: the variables, float32 [size of the shard] each.
    """

    def __init__(self, name: str, section: Section, devices: Sequence[str], trainable: bool):
        self.section = section
        count = min(len(devices), section.size)
        bounds = [section.size * index // max(1, count) for index in range(count + 1)]
        self._bounds = list(zip(bounds, bounds[1:]))
        initial: Any = section.initial_value() if count else None
        self.shards = []
        for index, (start, end) in enumerate(self._bounds):
            facts = {"trainable": trainable, "use_resource": True}
            with tf.device(devices[index]):
                shard = tf.get_variable(f"{name}_{index}", initializer=initial[start:end], **facts)
            self.shards.append(shard)

    def split(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """Splits a flat tensor, [section.size], into one part per shard."""
        if len(self._bounds) == 1:
            return [flat]
        return [flat[start:end] for start, end in self._bounds]

    def read(self, dtype: Any = tf.float32) -> list[tf.Tensor]:
        """Reads every shard once; values are sent to other machines in the type `dtype`.

        Returns:
          One part per shard, float32 [size of the shard].
        """
        parts = []
        for shard in self.shards:
            with tf.device(shard.device):
                value = tf.cast(shard.read_value(), dtype)
            parts.append(tf.cast(value, tf.float32))
        return parts


class Slices:
    """A tower's weights: slices of its copy of the flat vector, on the copy's device.

    For moving statistics, `get` returns None. Fixed weights have no gradient.

    Args:
      section: the specs of the values in the flat vector.
      flat: the tower's copy, float32 [section.size].
    """

    def __init__(self, section: Section, flat: tf.Tensor) -> None:
        with tf.device(flat.device):
            self._values = section.unpack(flat)

    def get(self, spec: Spec) -> Any:
        """Returns the variable's slice, float32 of its shape; None for moving statistics."""
        value = self._values.get(spec.name)
        return tf.stop_gradient(value) if spec.kind == NON_TRAINABLE else value


class WholeVector(tf.train.Optimizer):
    """Applies gradients to the shards of a flat vector of weights, with one slot for each weight.

    Args:
      name: the optimizer's name, with which the names of slots in checkpoints end.
      update: the rule; the slot is 0 at first.
    """

    def __init__(self, name: str, update: Update) -> None:
        super().__init__(use_locking=False, name=name)
        self.update, self.slots = update, dict[str, Any]()

    def get_slot_names(self) -> list[str]:
        """Returns the name of the only slot."""
        return [_SLOT]

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns the slot of a shard, a variable of its shape; the first call makes it."""
        if var.name not in self.slots:
            full_name, zeros = f"{var.op.name}/{self.get_name()}", tf.zeros_initializer()
            with tf.init_scope(), tf.device(var.device):
                self.slots[var.name] = tf.get_variable(
                    full_name, var.shape, tf.float32, zeros, trainable=False, use_resource=True
                )
        return self.slots[var.name]

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[tf.Tensor, Any]],
        global_step: Any = None,
        name: Any = None,
    ) -> Any:
        """Returns the op that updates the weights and counts the step.

        Args:
          grads_and_vars: all shards of the flat vector, in order, each as a pair of its gradient,
            float32 [n], and its variable.
          global_step: the variable that counts steps.
          name: the name of the op.
        """
        gradients, shards = zip(*grads_and_vars)
        slots = [self.get_slot(shard, _SLOT) for shard in shards]
        gradient = tf.concat(gradients, 0)
        weights, kept = self.update(_concat(shards), gradient, _concat(slots))
        done = _assign(shards, weights) + _assign(slots, kept)
        with tf.control_dependencies(done):
            return global_step.assign_add(1, name=name).op


def _concat(shards: Sequence[Any]) -> tf.Tensor:
    return tf.concat([shard.read_value() for shard in shards], 0)


def _assign(shards: Sequence[Any], flat: tf.Tensor) -> list[Any]:
    parts = tf.split(flat, [shard.shape[0] for shard in shards])
    return [shard.assign(part) for shard, part in zip(shards, parts)]
