"""Update rules against the same rules in numpy, by hand."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import optimizers
from cifar10.config import TrainConfig
from cifar10.layers import BIAS, KERNEL, NORM, Weight

GRADIENT = 0.5


def update(config: TrainConfig, kind: str, steps: int) -> float:
    """Updates one weight from 2.0 with a gradient of 0.5 and a rate of 0.1."""
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("w", [], initializer=tf.constant_initializer(2.0))
        weight = Weight(variable, tf.identity(variable), kind)
        rate = tf.constant(0.1)
        pairs = optimizers.decay_kernels(
            config, rate, [(tf.constant(GRADIENT), variable)], [weight]
        )
        train_op = optimizers.build(config, rate).apply_gradients(pairs)
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train_op)
        return float(session.run(variable))


def test_momentum_adds_the_decay_to_a_kernels_gradient():
    config = TrainConfig(weight_decay=0.01, momentum=0.9)
    first = 2.0 - 0.1 * (0.5 + 0.01 * 2.0)
    second = first - 0.1 * (0.9 * 0.52 + 0.5 + 0.01 * first)
    assert update(config, KERNEL, 1) == pytest.approx(first)
    assert update(config, KERNEL, 2) == pytest.approx(second)


@pytest.mark.parametrize("kind", [BIAS, NORM])
@pytest.mark.parametrize("optimizer", ["momentum", "nesterov", "adam"])
def test_only_kernels_decay(optimizer, kind):
    decaying, plain = (
        TrainConfig(optimizer=optimizer, weight_decay=decay) for decay in (0.01, 0.0)
    )
    assert update(decaying, kind, 2) == update(plain, kind, 2)
    assert update(decaying, KERNEL, 2) < update(plain, KERNEL, 2)


def test_nesterov_looks_ahead_by_one_step_of_momentum():
    config = TrainConfig(optimizer="nesterov", weight_decay=0.0, momentum=0.9)
    assert update(config, KERNEL, 1) == pytest.approx(2.0 - 0.1 * (0.5 + 0.9 * 0.5))


def test_adam_decays_apart_from_its_moments():
    config = TrainConfig(optimizer="adam", weight_decay=0.01)
    # The first step of Adam is one rate long whatever the gradient.
    expected = 2.0 - 0.1 * 0.01 * 2.0 - 0.1
    assert update(config, KERNEL, 1) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(update(config, BIAS, 1), 1.9, atol=1e-5)
