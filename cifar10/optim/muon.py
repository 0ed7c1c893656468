"""Muon: orthogonalised steps for the kernels of convolutions, Nesterov's momentum for the rest.

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). Before the momentum of a kernel, as
a matrix of filters, is applied, it is replaced by approximately the nearest matrix with orthonormal
filters. So directions with small gradients learn as fast as those with large ones. The norm of a
kernel has no effect if its convolution is normalised. So each kernel is kept at the norm of a
matrix of unit filters, and the rate is the size of a step relative to that norm. Models in which
some convolution is not normalised are refused (`cifar10.config.checks`).
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

# x -> a x + b x^3 + c x^5, applied three times, maps singular values in [.02, 1] to [.68, 1.21].
_ITERATIONS, _COEFFICIENTS = 3, (3.4445, -4.7750, 2.0315)
_TINY = 1e-7


class Muon(OptimizerWithSlots):
    """Applies gradients to the pieces of a flat vector of weights.

    Args:
      config: the settings, with rates and momenta.
      rate: the learning rate of all weights but the kernels of convolutions, a scalar tensor.
      layout: the positions of the weights in the flat vector.
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
          grads_and_vars: all pieces of the flat vector, in order, each as a pair of its gradient,
            float32 [n], and its variable.
          global_step: the variable that counts steps; None: the step is not counted.
          name: the name of the op.
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
        """Splits the flat vector into the convolutions' kernels, each flat, and all the rest."""
        return tf.split(tf.concat(pieces, 0), self._sizes)


def convolutions(layout: Layout) -> list[Spec]:
    """Returns the specs of the convolutions' kernels, which must be the first weights.

    Raises:
      ValueError: another kernel comes before one of them.
    """
    specs = layout.weights.specs
    count = sum(len(spec.shape) == 4 for spec in layout.kernels)
    if any(len(spec.shape) != 4 for spec in specs[:count]):
        raise ValueError("convolutions' kernels must be a model's first ones")
    return list(specs[:count])


def orthogonal(flat: tf.Tensor, spec: Spec) -> tf.Tensor:
    """Approximates the nearest matrix with orthonormal filters, that is columns.

    If there are more filters than weights in a filter, the rows become orthonormal instead. The
    method is the Newton-Schulz iteration with the article's coefficients, which is not exact.

    Args:
      flat: float32 [height * width * inputs * filters], in the order of the kernel.
      spec: the spec of the kernel.

    Returns:
      A tensor of the shape of `flat`.
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
    """Scales the kernel to the norm of a matrix whose filters have norm 1."""
    return flat * (math.sqrt(spec.shape[-1]) / (tf.norm(flat) + _TINY))


def _assign(pieces: Sequence[Any], flat: tf.Tensor) -> list[Any]:
    parts = tf.split(flat, [piece.shape[0] for piece in pieces])
    return [piece.assign(part) for piece, part in zip(pieces, parts)]
