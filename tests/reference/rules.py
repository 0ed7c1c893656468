"""Update rules in numpy, float64, written from the papers without code of `cifar10`."""

import dataclasses
from typing import Any, Optional

import numpy as np

Array = Any
Values = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a run, named like the pipeline's flags; None: the pipeline's default."""

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
    batch_norm_decay: float = 0.997
    batch_norm_epsilon: float = 1e-5
    whitening_bias_epochs: Optional[float] = None  # for fastnet only


class Rule:
    """An update rule, and its state, such as momentum.

    Args:
      settings: the settings of the run.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._first: Values = {}
        self._second: Values = {}
        self._steps = 0

    def decayed(self, weights: Values, gradients: Values) -> Values:
        """Returns the gradients of the loss with weight decay, (decay / 2) |weights|^2.

        For Adam, they are without weight decay, since its weights decay apart from the gradients.
        Jordan 2024 (arXiv:2404.00498) gives the offsets of normalisations a learning rate of their
        own; here, their gradients are multiplied by it, and their decay is not.
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
        """Returns the weights after a step; `gradients` come from `decayed`."""
        self._steps += 1
        rule = getattr(self, f"_{self._settings.optimizer}")
        return {name: rule(name, weights[name], gradients[name]) for name in weights}

    def _momentum(self, name: str, weight: Array, gradient: Array) -> Array:
        """Returns the weight after a step with momentum: Sutskever et al. 2013, equations 1, 2."""
        rate, momentum = self._settings.learning_rate, self._settings.momentum
        self._first[name] = momentum * self._first.get(name, 0.0) - rate * gradient
        return weight + self._first[name]

    def _nesterov(self, name: str, weight: Array, gradient: Array) -> Array:
        """Returns the weight after a Nesterov step: Sutskever et al. 2013, equations 3 and 4.

        The paper takes the gradient at theta + momentum * velocity. This point is the network's
        weight, also in checkpoints, so theta is computed from it.
        """
        rate, momentum = self._settings.learning_rate, self._settings.momentum
        velocity = self._first.get(name, 0.0)
        theta = weight - momentum * velocity
        velocity = momentum * velocity - rate * gradient
        theta = theta + velocity
        self._first[name] = velocity
        return theta + momentum * velocity

    def _adam(self, name: str, weight: Array, gradient: Array) -> Array:
        """Returns the weight after a step of Adam: Kingma & Ba 2014, arXiv:1412.6980, section 2.

        The order of operations is that at the end of the section, where epsilon has a hat. Weight
        decay is separate: Loshchilov & Hutter 2017, arXiv:1711.05101, algorithm 2, with the
        learning rate as a factor of the decay.
        """
        alpha, first, second, epsilon = self._settings.learning_rate, 0.9, 0.999, 1e-8
        m = first * self._first.get(name, 0.0) + (1 - first) * gradient
        v = second * self._second.get(name, 0.0) + (1 - second) * gradient**2
        self._first[name], self._second[name] = m, v
        alpha_t = alpha * np.sqrt(1 - second**self._steps) / (1 - first**self._steps)
        decay = alpha * self._settings.weight_decay if self._decays(name) else 0.0
        return weight - alpha_t * m / (np.sqrt(v) + epsilon) - decay * weight

    def _muon(self, name: str, weight: Array, gradient: Array) -> Array:
        """Returns the weight after a step of Muon, as in airbench94.

        Jordan et al. 2024, https://kellerjordan.github.io/posts/muon. Before each step, the kernel
        of a convolution is scaled to the norm of a matrix with unit filters; it does not decay. All
        other weights take a step with Nesterov momentum.
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
    """Makes a matrix, [filters, inputs], nearly orthogonal.

    It takes three iterations of Newton and Schulz, with Jordan's coefficients.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (np.linalg.norm(matrix) + 1e-7)
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    for _ in range(3):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if is_tall else x


class Lookahead:
    """Pulls the weights to a slow copy every few steps: Zhang et al. 2019, arXiv:1907.08610.

    At a pull, the slow copy keeps the share 0.95**every * progress**3 of itself, where progress is
    the share of the run that is done: Jordan 2024, arXiv:2404.00498, section 3.4.

    Args:
      every: number of steps between two pulls; 0: never.
      values: weights and moving statistics before the first step, by name.
      total_steps: global step at which training ends.
    """

    def __init__(self, every: int, values: Values, total_steps: int) -> None:
        self._every, self._slow, self._total = every, values, total_steps

    def pull(self, fast: Values, step: int) -> Values:
        """Returns the weights and moving statistics to continue with after global step `step`."""
        if not self._every or step % self._every:
            return fast
        kept = 0.95**self._every * (step / self._total) ** 3
        self._slow = {name: kept * self._slow[name] + (1 - kept) * fast[name] for name in fast}
        return self._slow


def moved_statistics(decay: float, step: int, moving: Values, seen: Values) -> Values:
    """Returns moving averages whose decay warms up: it is at most (1 + step) / (10 + step)."""
    decay = min(decay, (1 + step) / (10 + step))
    return {name: decay * moving[name] + (1 - decay) * seen[name] for name in moving}
