"""Batch normalisation with ReLU in C++, against arXiv:1502.03167 in float64."""

from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.convolution import ConvAlgorithms
from cifar10.ops.kernels import library
from cifar10.ops.layers import Layers
from cifar10.ops.normalisation import norm_relu

EPSILON = 1e-3
NAMES = ("y", "mean", "variance", "of x", "of gamma", "of beta", "of shortcut")

pytestmark = pytest.mark.usefixtures("compiled_kernels")


def rounded(values: Any, dtype: Any) -> Any:
    """Numbers of a type, as float64."""
    return np.float64(np.asarray(values, dtype.as_numpy_dtype))


def exact(x: Any, gamma: Any, beta: Any, shortcut: Any, upstream: Any) -> list[Any]:
    """Algorithm 1 of the article and the gradients that follow it, with ReLU; float64."""
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes)
    normal = (x - mean) / np.sqrt(variance + EPSILON)
    before = normal * gamma + beta + (0 if shortcut is None else shortcut)
    above = np.where(before > 0, upstream, 0)
    of_normal = above * gamma
    count = x.size // x.shape[-1]
    of_variance = (of_normal * (x - mean)).sum(axes) * -0.5 * (variance + EPSILON) ** -1.5
    of_mean = -of_normal.sum(axes) / np.sqrt(variance + EPSILON)
    of_x = of_normal / np.sqrt(variance + EPSILON)
    of_x += of_variance * 2 * (x - mean) / count + of_mean / count
    found = [np.maximum(before, 0), mean, variance]
    return [*found, of_x, (above * normal).sum(axes), above.sum(axes), above]


def compute(dtype: Any, threads: int, inputs: Any) -> list[Any]:
    """The output, statistics and gradients."""
    config = tf.ConfigProto(intra_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        x, gamma, beta, shortcut, upstream = (
            None if value is None else tf.placeholder_with_default(np.float32(value), value.shape)
            for value in inputs
        )
        x, shortcut, upstream = (
            None if value is None else tf.cast(value, dtype) for value in (x, shortcut, upstream)
        )
        found = norm_relu(x, gamma, beta, shortcut, EPSILON)
        sources = [x, gamma, beta] + ([] if shortcut is None else [shortcut])
        gradients = tf.gradients(found.y, sources, upstream)
        assert found.y.dtype == gradients[0].dtype == dtype
        return [np.float64(one) for one in session.run([*found, *gradients])]


def random_inputs(shape: tuple[int, ...], with_shortcut: bool, dtype: Any) -> list[Optional[Any]]:
    random = np.random.default_rng(3)
    x, shortcut, upstream = (rounded(random.normal(size=shape), dtype) for _ in range(3))
    channels = shape[-1]
    x = rounded(x * random.uniform(0.1, 10, channels) + random.normal(size=channels) * 3, dtype)
    gamma, beta = (np.float64(np.float32(random.normal(size=channels))) for _ in range(2))
    return [x, gamma, beta, shortcut if with_shortcut else None, upstream]


def error(found: Any, expected: Any) -> float:
    """Root mean square, by the size of what is expected."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


@pytest.mark.parametrize("with_shortcut", [False, True], ids=["plain", "with a shortcut"])
@pytest.mark.parametrize(
    "shape",
    [(16, 32, 32, 16), (33, 8, 8, 64), (3, 7, 5, 112), (1, 1, 2, 16)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_errors_are_roundings_of_what_is_stored_and_of_float32(dtype, shape, with_shortcut):
    inputs = random_inputs(shape, with_shortcut, dtype)
    found = compute(dtype, 2, inputs)
    assert len(found) == 6 + with_shortcut
    for name, one, expected in zip(NAMES, found, exact(*inputs)):
        narrow = dtype == tf.bfloat16 and name in ("y", "of x")
        assert error(one, expected) < (3e-3 if narrow else 1e-6), name


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_the_number_of_threads_changes_no_bit(dtype):
    inputs = random_inputs((9, 32, 32, 16), True, dtype)
    one, three = (compute(dtype, threads, inputs) for threads in (1, 3))
    for first, second in zip(one, three):
        np.testing.assert_array_equal(first, second)


def test_a_mean_far_above_the_deviation_costs_no_digits_of_the_variance():
    inputs = random_inputs((8, 16, 16, 16), False, tf.float32)
    inputs[0] = np.float64(np.float32(inputs[0] + 3000))
    found = compute(tf.float32, 2, inputs)
    np.testing.assert_allclose(found[2], inputs[0].var((0, 1, 2)), rtol=2e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_it_does_not_hide_that_training_has_diverged(dtype):
    inputs = random_inputs((2, 8, 8, 16), False, dtype)
    inputs[0][1, 2, 3, 5] = np.nan
    found = compute(dtype, 2, inputs)[0]
    assert np.isnan(found[..., 5]).all()
    assert np.isfinite(np.delete(found, 5, axis=3)).all()


@pytest.mark.parametrize("name", ["gamma", "beta", "mean", "variance"])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_every_nan_of_a_channels_numbers_is_one_in_what_follows(dtype, name):
    numbers = {one: np.ones(16, np.float32) for one in ("gamma", "beta", "mean", "variance")}
    numbers[name].view(np.uint32)[5] = 0xFFFFFFFF  # a GPU's NaN with a sign
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.cast(np.random.default_rng(1).normal(size=(2, 8, 8, 16)), dtype)
        gamma, beta, *statistics = map(tf.constant, numbers.values())
        y = library.load().cifar10_norm_relu(x, gamma, beta, [], epsilon=EPSILON).y
        of_x = (
            library.load()
            .cifar10_norm_relu_grad(x, gamma, beta, *statistics, x, [], epsilon=EPSILON)
            .of_x
        )
        found_y, found_of_x = session.run([tf.cast(one, tf.float32) for one in (y, of_x)])
    # The op has statistics of its own. No gradient passes a ReLU whose output is NaN.
    for found, is_nan in ((found_y, name in ("gamma", "beta")), (found_of_x, name != "beta")):
        assert np.isnan(found[..., 5]).all() == is_nan
        assert np.isfinite(np.delete(found, 5, axis=3)).all()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ({}, True),
        ({"norm": "off"}, False),
    ],
    ids=["of a tower", "off"],
)
def test_layers_compute_the_same_with_and_without_it(settings, may, own):
    random = np.random.default_rng(5)
    x, shortcut = (np.float32(random.normal(size=(6, 8, 8, 16))) for _ in range(2))
    with tf.Graph().as_default() as graph, tf.Session() as session:
        found = []
        for algorithms in (ConvAlgorithms(own=own), ConvAlgorithms()):
            layers = Layers(True, algorithms=algorithms, norm_epsilon=EPSILON, **settings)
            y = layers.batch_norm_relu(tf.constant(x), tf.constant(shortcut), first_scale=0.5)
            found.append([y, *tf.gradients(y, tf.trainable_variables()[-2:]), *layers.statistics])
        names = [one.op.name for one in tf.global_variables()]
        assert names[: len(names) // 2] == [
            f"batch_norm/{name}"
            for name in ("gamma", "beta", "moving_mean", "moving_variance")[: len(names) // 2]
        ]
        session.run(tf.global_variables_initializer())
        ours, theirs = (tf.nest.flatten(session.run(one)) for one in found)
    assert any(op.type == "Cifar10NormRelu" for op in graph.get_operations()) == (own and may)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "numbers", "shortcuts", "message"),
    [
        ([2, 8, 8, 24], 24, [], r"channels in multiples of 16 and is not of shape \[2,8,8,24\]"),
        ([0, 8, 8, 0], 0, [], r"channels in multiples of 16 and is not of shape \[0,8,8,0\]"),
        ([2, 8, 8, 16], 32, [], r"have the shape \[32\], not \[16\]"),
        ([2, 8, 8, 16], 16, [[2, 8, 4, 16]], r"one shortcut of the shape \[2,8,8,16\]"),
    ],
)
def test_other_sizes_are_refused(shape, numbers, shortcuts, message):
    with tf.Graph().as_default(), tf.Session() as session:
        y = library.load().cifar10_norm_relu(
            tf.zeros(shape),
            tf.ones([numbers]),
            tf.zeros([numbers]),
            [tf.zeros(one) for one in shortcuts],
            epsilon=EPSILON,
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(y)
