"""GELU: the published function and its slope, in TensorFlow's ops and in C++."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.normalisation import gelu

VALUES = np.linspace(-6, 6, 241).astype(np.float32)
BOTH = pytest.mark.parametrize("own", [False, True], ids=["tensorflow", "own"])

pytestmark = pytest.mark.usefixtures("compiled_kernels")


def run_gelu(own: bool, values: Any, dtype: Any = tf.float32) -> tuple[Any, Any]:
    """The function and, for upstream gradients of 3, its gradient, in float32."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.cast(tf.placeholder_with_default(np.float32(values), np.shape(values)), dtype)
        y = gelu(x, own)
        (gradient,) = tf.gradients(y, x, tf.fill(np.shape(values), tf.cast(3, dtype)))
        assert (y.dtype, gradient.dtype) == (dtype, dtype)
        assert x.shape == y.shape == gradient.shape
        return tuple(session.run([tf.cast(y, tf.float32), tf.cast(gradient, tf.float32)]))


def exact_gelu(values: Any) -> tuple[Any, Any]:
    """The function and its slope in float64."""
    x = np.float64(values)
    tanh = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    of_tanh = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + tanh), 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * of_tanh


@BOTH
def test_it_is_the_tanh_form_of_gelu(own):
    erf = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in VALUES])
    found, gradient = run_gelu(own, VALUES)
    np.testing.assert_allclose(found, exact_gelu(VALUES)[0], atol=1e-6)
    # The gradient of TensorFlow's tanh, which cancels far from 0, is the less exact one.
    np.testing.assert_allclose(gradient, 3 * exact_gelu(VALUES)[1], atol=2e-5)
    np.testing.assert_allclose(found, erf, atol=5e-4)


def test_own_gelu_is_exact_to_a_few_units_of_the_last_place():
    random = np.random.default_rng(3)
    spread = np.exp2(random.uniform(-126, 40, 50_000)) * random.choice([-1, 1], 50_000)
    values = np.concatenate([np.linspace(-12, 12, 50_001), spread]).astype(np.float32)
    found, gradient = run_gelu(True, values)
    expected, slope = exact_gelu(values)
    error = np.abs(found - expected) / np.maximum(np.abs(values), 1e-30)
    assert error.max() < 2e-7
    assert np.abs(gradient / 3 - slope).max() < 5e-7


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_own_gelu_of_numbers_at_the_edge(dtype):
    values = [math.inf, -math.inf, 3e38, -3e38, 1e-40, -1e-40, 0.0]
    found, gradient = run_gelu(True, values, dtype)
    assert found[0] == math.inf
    np.testing.assert_allclose(found[2:4], [3e38, 0.0], rtol=2**-8, atol=1e-30)
    # Subnormal numbers may count as zero.
    np.testing.assert_allclose([found[1], *found[4:]], 0.0, atol=2e-37)
    np.testing.assert_allclose(gradient, [3.0, 0.0, 3.0, 0.0, 1.5, 1.5, 1.5], atol=1e-30)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@BOTH
def test_gelu_does_not_hide_that_training_has_diverged(own, dtype):
    found, gradient = run_gelu(own, [math.nan, -math.nan], dtype)
    assert np.isnan([*found, *gradient]).all()
