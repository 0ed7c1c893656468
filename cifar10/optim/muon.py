"""Muon: convolutions' kernels take steps of equal size in all directions, the rest Nesterov's.

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). The momentum of a kernel, as a
matrix of filters, is replaced by about the nearest matrix with orthogonal filters before it is
applied, so that directions with small gradients learn as fast as those with large ones. The length
of a kernel has no effect where its convolution is normalised. So each kernel is kept at the length
of a matrix of unit filters, and the rate is the length of a step relative to it.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.rates import base_rate
from cifar10.config.train_config import TrainConfig
from cifar10.tf_internals.optimizer_slots import OptimizerWithSlots
from cifar10.weights.packed import Layout
from cifar10.weights.spec import Spec

# x -> a x + b x^3 + c x^5, done three times, takes singular values from .02 to 1 to .68 to 1.21.
_ITERATIONS, _COEFFICIENTS = 3, (3.4445, -4.7750, 2.0315)
_TINY = 1e-7


class Muon(OptimizerWithSlots):
    """Applies gradients to the pieces of a flat vector of weights.

    Args:
      config: rates and momenta.
      rate: learning rate of what is no convolution's kernel, a scalar tensor.
      layout: of the weights.
    """

    def __init__(self, config: TrainConfig, rate: tf.Tensor, layout: Layout) -> None:
        super().__init__(use_locking=False, name="Muon")
        self._config, self._rate = config, rate
        self._kernels = convolutions(layout)
        self._sizes = [spec.size for spec in self._kernels]
        self._sizes.append(layout.weights.size - sum(self._sizes))

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[tf.Tensor, Any]],
        global_step: Any = None,
        name: Any = None,
    ) -> Any:
        """Returns the op that updates the weights and counts the step.

        Args:
          grads_and_vars: float32 [n] and its piece of the flat vector, in order, all of them.
          global_step: variable to count the step in.
          name: of the op.
        """
        gradients, pieces = zip(*grads_and_vars)
        slots = self.zeros_slots(pieces, "momentum")
        config = self._config
        momenta = [config.muon_momentum] * len(self._kernels) + [config.momentum]
        weights, direction, kept = [], [], []
        for gradient, momentum, weight, factor in zip(
            self._parts(gradients),
            self._parts([slot.read_value() for slot in slots]),
            self._parts([piece.read_value() for piece in pieces]),
            momenta,
        ):
            kept.append(factor * momentum + gradient)
            direction.append(gradient + factor * kept[-1])
            weights.append(weight)
        kernel_rate = self._rate * (config.muon_rate / base_rate(config).value)
        stepped = [
            _unit_filters(weight, spec) - kernel_rate * orthogonal(ahead, spec)
            for weight, ahead, spec in zip(weights, direction, self._kernels)
        ]
        stepped.append(weights[-1] - self._rate * direction[-1])
        done = _assign(pieces, tf.concat(stepped, 0)) + _assign(slots, tf.concat(kept, 0))
        if global_step is None:
            return tf.group(*done, name=name)
        with tf.control_dependencies(done):
            return global_step.assign_add(1, name=name).op

    def _parts(self, pieces: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Pieces of the flat vector -> the kernels, each flat, and all the rest."""
        return tf.split(tf.concat(pieces, 0), self._sizes)


def convolutions(layout: Layout) -> list[Spec]:
    """The kernels of convolutions, which are the first weights."""
    specs = layout.weights.specs
    count = sum(len(spec.shape) == 4 for spec in layout.kernels)
    if any(len(spec.shape) != 4 for spec in specs[:count]):
        raise ValueError("convolutions' kernels must be a model's first ones")
    return list(specs[:count])


def orthogonal(flat: tf.Tensor, spec: Spec) -> tf.Tensor:
    """About the nearest matrix with orthonormal filters (columns, or else rows).

    By Newton and Schulz's iteration, with the coefficients of the article: not to the last digit.

    Args:
      flat: float32 [height * width * inputs * filters], of the kernel's layout.
      spec: of the kernel.

    Returns:
      The same shape.
    """
    filters = spec.shape[-1]
    x = tf.reshape(flat, [-1, filters])
    x /= tf.norm(x) + _TINY
    is_tall = spec.size // filters >= filters
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        square = tf.matmul(x, x, transpose_a=is_tall, transpose_b=not is_tall)
        factor = b * square + c * tf.matmul(square, square)
        x = a * x + (tf.matmul(x, factor) if is_tall else tf.matmul(factor, x))
    return tf.reshape(x, [-1])


def _unit_filters(flat: tf.Tensor, spec: Spec) -> tf.Tensor:
    """Gives the kernel the length of a matrix whose filters have length 1."""
    return flat * (math.sqrt(spec.shape[-1]) / (tf.norm(flat) + _TINY))


def _assign(pieces: Sequence[Any], flat: tf.Tensor) -> list[Any]:
    parts = tf.split(flat, [piece.shape[0] for piece in pieces])
    return [piece.assign(part) for piece, part in zip(pieces, parts)]
