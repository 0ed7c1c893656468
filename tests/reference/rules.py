"""Update rules in numpy, float64. Written from the papers; nothing here is of `cifar10`."""

import dataclasses
from typing import Any, Optional

import numpy as np

Array = Any
Values = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A run's, by the names of the pipeline's flags; None: left at what the pipeline has."""

    model: str
    optimizer: str
    learning_rate: float
    weight_decay: float = 0.0
    momentum: Optional[float] = None
    muon_rate: Optional[float] = None
    muon_momentum: Optional[float] = None
    decay_biases: bool = False
    norm_bias_rate: float = 1.0
    label_smoothing: float = 0.0
    lookahead_steps: int = 0
    batch_norm: str = "tower"
    batch_norm_decay: float = 0.997
    batch_norm_epsilon: float = 1e-5
    whitening_bias_epochs: Optional[float] = None  # fastnet's alone


class Rule:
    """One of the update rules, and what it remembers of earlier steps.

    Args:
      settings: the run's.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._first: Values = {}
        self._second: Values = {}
        self._steps = 0

    def decayed(self, weights: Values, gradients: Values) -> Values:
        """The gradients of the loss with its decay, (decay / 2) |weights|^2, but for AdamW.

        Jordan 2024 (arXiv:2404.00498) gives the offsets of normalisations a rate of their own; it
        multiplies their gradient here, and not their decay.
        """
        result = {}
        for name, gradient in gradients.items():
            if name.endswith("/beta"):
                gradient = self._settings.norm_bias_rate * gradient
            if self._decays(name) and self._settings.optimizer != "adam":
                gradient = gradient + self._settings.weight_decay * weights[name]
            result[name] = gradient
        return result

    def step(self, weights: Values, gradients: Values) -> Values:
        """The weights after a step; `gradients` as `decayed` gives them."""
        self._steps += 1
        rule = getattr(self, f"_{self._settings.optimizer}")
        return {name: rule(name, weights[name], gradients[name]) for name in weights}

    def _momentum(self, name: str, weight: Array, gradient: Array) -> Array:
        """Sutskever et al. 2013, equations 1 and 2."""
        rate, momentum = self._settings.learning_rate, self._settings.momentum
        self._first[name] = momentum * self._first.get(name, 0.0) - rate * gradient
        return weight + self._first[name]

    def _nesterov(self, name: str, weight: Array, gradient: Array) -> Array:
        """Sutskever et al. 2013, equations 3 and 4.

        The gradient there is one at theta + momentum * velocity. The weights that a network is
        trained and saved with are these points; theta lies one step of momentum behind them.
        """
        rate, momentum = self._settings.learning_rate, self._settings.momentum
        velocity = self._first.get(name, 0.0)
        theta = weight - momentum * velocity
        velocity = momentum * velocity - rate * gradient
        theta = theta + velocity
        self._first[name] = velocity
        return theta + momentum * velocity

    def _adam(self, name: str, weight: Array, gradient: Array) -> Array:
        """Kingma & Ba 2014, arXiv:1412.6980, in the order at the end of its section 2.

        Epsilon is the one with a hat. Weights decay apart: Loshchilov & Hutter 2017,
        arXiv:1711.05101, algorithm 2, with the rate as a factor of the decay.
        """
        alpha, first, second, epsilon = self._settings.learning_rate, 0.9, 0.999, 1e-8
        m = first * self._first.get(name, 0.0) + (1 - first) * gradient
        v = second * self._second.get(name, 0.0) + (1 - second) * gradient**2
        self._first[name], self._second[name] = m, v
        alpha_t = alpha * np.sqrt(1 - second**self._steps) / (1 - first**self._steps)
        decay = alpha * self._settings.weight_decay if self._decays(name) else 0.0
        return weight - alpha_t * m / (np.sqrt(v) + epsilon) - decay * weight

    def _muon(self, name: str, weight: Array, gradient: Array) -> Array:
        """Jordan et al. 2024, https://kellerjordan.github.io/posts/muon, as in airbench94.

        Kernels of convolutions are kept at the length of a matrix of unit filters, and do not
        decay; all else takes Nesterov's steps.
        """
        if weight.ndim != 4:
            return self._nesterov(name, weight, gradient)
        momentum, filters = self._settings.muon_momentum, weight.shape[-1]
        self._first[name] = momentum * self._first.get(name, 0.0) + gradient
        ahead = gradient + momentum * self._first[name]
        step = orthogonal(ahead.reshape(-1, filters).T).T.reshape(weight.shape)
        unit = weight * np.sqrt(filters) / np.linalg.norm(weight)
        return unit - self._settings.muon_rate * step

    def _decays(self, name: str) -> bool:
        if name.startswith("model/whitening"):
            return False
        if self._settings.optimizer == "muon" and "/conv" in name:
            return False
        return self._settings.decay_biases or name.endswith("/kernel")


def orthogonal(matrix: Array) -> Array:
    """Newton and Schulz's iteration with Jordan's coefficients; [filters, inputs], three times."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (np.linalg.norm(matrix) + 1e-7)
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    for _ in range(3):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if is_tall else x


class Lookahead:
    """Zhang et al. 2019, arXiv:1907.08610: every few steps the weights meet a slow copy.

    The slow copy keeps .95 a step times the cube of the share of the run: arXiv:2404.00498, section
    3.4.
    """

    def __init__(self, every: int, values: Values, total_steps: int) -> None:
        self._every, self._slow, self._total = every, values, total_steps

    def pull(self, fast: Values, step: int) -> Values:
        """What weights and moving statistics are after `step` steps."""
        if not self._every or step % self._every:
            return fast
        kept = 0.95**self._every * (step / self._total) ** 3
        self._slow = {name: kept * self._slow[name] + (1 - kept) * fast[name] for name in fast}
        return self._slow


def moved_statistics(decay: float, step: int, moving: Values, seen: Values) -> Values:
    """Moving averages whose decay warms up: at most (1 + step) / (10 + step)."""
    decay = min(decay, (1 + step) / (10 + step))
    return {name: decay * moving[name] + (1 - decay) * seen[name] for name in moving}
