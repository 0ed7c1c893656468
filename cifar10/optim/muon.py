"""Muon: orthogonalised steps for the kernels of convolutions, Nesterov's momentum for the rest.

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). Before the momentum of a kernel, as
a matrix of filters, is applied, it is replaced by approximately the nearest matrix with orthonormal
filters. So directions with small gradients learn as fast as those with large ones. The norm of a
kernel has no effect if its convolution is normalised. So each kernel is kept at the norm of a
matrix of unit filters, and the rate is the size of a step relative to that norm.
"""

import dataclasses
import math
from typing import Any

from cifar10.config.settings import setting
from cifar10.models.base import Rate
from cifar10.optim.base import Optimizer
from cifar10.optim.momentum import MomentumSettings

# x -> a x + b x^3 + c x^5, applied three times, maps singular values in [.02, 1] to [.68, 1.21].
_ITERATIONS, _COEFFICIENTS = 3, (3.4445, -4.7750, 2.0315)
_TINY = 1e-7
# The rate of what Muon does not train; the default of --muon-rate is for 2,048 images, too.
_RATE = Rate(1.6, 2048, 1.6)


@dataclasses.dataclass(frozen=True)
class MuonSettings(MomentumSettings):
    """The settings of Muon; `momentum` is that of all weights but the kernels of convolutions."""

    muon_rate: float = setting(
        "highest step of a kernel in muon, relative to its norm", 0.24, group="training", above=0
    )
    muon_momentum: float = setting(
        "momentum of the kernels that muon trains", 0.6, group="training", at_least=0, below=1
    )


class Muon(Optimizer):
    """Muon for the kernels of convolutions, which it keeps at a fixed norm."""

    name = "muon"
    settings = MuonSettings
    needs_normalised_kernels = True
    updates_at_once = True

    def build(self, config: Any, rate: Any, layout: Any) -> Any:
        """Makes the optimizer; the rate is that of all weights but the kernels of convolutions."""
        from cifar10.optim.packed import WholeVector

        given = config.learning_rate
        share = config.muon_rate / (_RATE.value if given is None else given)
        kernels = convolutions(layout)
        sizes = [spec.size for spec in kernels]
        sizes.append(layout.weights.size - sum(sizes))
        momenta = [config.muon_momentum] * len(kernels) + [config.momentum]

        def update(weights: Any, gradient: Any, slot: Any) -> tuple[Any, Any]:
            import tensorflow.compat.v1 as tf

            # The convolutions' kernels, each flat, and all the rest.
            parts = zip(*(tf.split(flat, sizes) for flat in (gradient, slot, weights)))
            kernel_rate, stepped, kept = rate * share, [], []
            for (part, momentum, weight), factor, spec in zip(parts, momenta, [*kernels, None]):
                kept.append(factor * momentum + part)
                ahead = part + factor * kept[-1]
                if spec is not None:
                    # The norm of a matrix whose filters have norm 1.
                    scale = math.sqrt(spec.shape[-1]) / (tf.norm(weight) + _TINY)
                    stepped.append(weight * scale - kernel_rate * orthogonal(ahead, spec))
                else:
                    stepped.append(weight - rate * ahead)
            return tf.concat(stepped, 0), tf.concat(kept, 0)

        return WholeVector("Muon", update)

    def rate(self, of_model: Rate) -> Rate:
        """Returns the same rate for all models, that of what Muon does not train."""
        return _RATE

    def decays(self, spec: Any) -> bool:
        """Returns whether a kernel is that of a dense layer: the others' norm is fixed."""
        return len(spec.shape) != 4


def convolutions(layout: Any) -> list[Any]:
    """Returns the specs of the convolutions' kernels, which must be the first weights.

    Raises:
      ValueError: another kernel comes before one of them.
    """
    specs = layout.weights.specs
    count = sum(len(spec.shape) == 4 for spec in layout.kernels)
    if any(len(spec.shape) != 4 for spec in specs[:count]):
        raise ValueError("convolutions' kernels must be a model's first ones")
    return list(specs[:count])


def orthogonal(flat: Any, spec: Any) -> Any:
    """Approximates the nearest matrix with orthonormal filters, that is columns.

    If there are more filters than weights in a filter, the rows become orthonormal instead. The
    method is the Newton-Schulz iteration with the article's coefficients, which is not exact.

    Args:
      flat: float32 [height * width * inputs * filters], in the order of the kernel.
      spec: the spec of the kernel.

    Returns:
      A tensor of the shape of `flat`.
    """
    import tensorflow.compat.v1 as tf

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
