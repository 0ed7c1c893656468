"""Muon's parts; tests/reference compares its steps."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import optim
from cifar10.config.train_config import TrainConfig
from cifar10.ops.variables import KERNEL, OFFSET, Spec
from cifar10.optim import muon
from cifar10.optim.packed import Layout

ONES = tf.ones_initializer()
WIDE, TALL = Spec("wide", (1, 1, 3, 8), ONES, KERNEL), Spec("tall", (3, 3, 2, 4), ONES, KERNEL)
SPECS = [Spec("offset", (2,), ONES, OFFSET), WIDE, TALL, Spec("d", (4, 3), ONES, KERNEL)]
LAYOUT = Layout(SPECS, {})
SIZE = 24 + 72 + 12 + 2
CONFIG = TrainConfig(optimizer="muon", muon_rate=0.2, muon_momentum=0.6)


def orthogonal(matrix: Any) -> Any:
    with tf.Graph().as_default(), tf.Session() as session:
        rows, columns = matrix.shape
        spec = Spec("kernel", (1, 1, rows, columns), ONES, KERNEL)
        flat = tf.constant(matrix.reshape(-1), tf.float32)
        return session.run(muon.orthogonal(flat, spec)).reshape(matrix.shape)


@pytest.mark.parametrize("shape", [(12, 5), (5, 12)], ids=str)
def test_three_iterations_of_the_articles_polynomial_are_applied_to_each_length(shape: Any):
    u, _, v = np.linalg.svd(np.random.default_rng(4).normal(size=shape), full_matrices=False)
    lengths = np.array([0.8, 0.5, 0.3, 0.1, 0.1])  # Their squares add up to 1.
    expected = lengths
    for _ in range(3):
        expected = 3.4445 * expected - 4.775 * expected**3 + 2.0315 * expected**5
    found = orthogonal(7.0 * u @ np.diag(lengths) @ v)  # whatever length the gradient has
    np.testing.assert_allclose(found, u @ np.diag(expected) @ v, rtol=1e-3, atol=1e-4)


def test_a_kernel_of_zeros_is_no_error():
    with tf.Graph().as_default(), tf.Session() as session:
        shard = tf.get_variable("w", [SIZE], initializer=tf.zeros_initializer(), use_resource=True)
        optimizer = optim.find("muon").build(CONFIG, tf.constant(0.5), LAYOUT)
        done = optimizer.apply_gradients([(tf.zeros([SIZE]), shard)], tf.train.create_global_step())
        session.run(tf.global_variables_initializer())
        session.run(done)
        np.testing.assert_array_equal(session.run(shard), 0.0)


def test_convolutions_are_told_from_other_kernels():
    assert [spec.name for spec in muon.convolutions(LAYOUT)] == ["wide", "tall"]
    for after in ([TALL], [TALL, TALL._replace(name="second")]):
        with pytest.raises(ValueError, match="must be a model's first"):
            muon.convolutions(Layout([Spec("d", (4, 3), ONES, KERNEL), *after], {}))
