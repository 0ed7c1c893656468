"""Normalisation with ReLU, and GELU, in C++, against their published formulas in float64."""

import math
from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.kernels import load
from cifar10.ops.layers import Layers
from cifar10.ops.operations import CUSTOM_OPS, TENSORFLOW, gelu

EPSILON = 1e-3
BOTH_TYPES = pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
SHORTCUT = pytest.mark.parametrize("with_shortcut", [False, True], ids=["plain", "shortcut"])

pytestmark = pytest.mark.usefixtures("compiled_kernels")


def rounded(values: Any, dtype: Any = tf.float32) -> Any:
    """Numbers of a type, as float64."""
    return np.float64(np.asarray(values, dtype.as_numpy_dtype))


def error(found: Any, expected: Any) -> float:
    """Root mean square, by the size of what is expected."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


def run(build: Any, given: Any, threads: int = 2) -> Any:
    """What `build` makes of placeholders of these values, a list, as float64."""
    config = tf.ConfigProto(intra_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        # Of constants, TensorFlow would compute products before the graph runs, and keep them.
        inputs = [
            None if value is None else tf.placeholder_with_default(np.float32(value), value.shape)
            for value in given
        ]
        return [np.float64(value) for value in session.run(build(*inputs))]


def call(op: str, *inputs: Any, shortcut: Any) -> Any:
    """What a custom op makes of its inputs."""
    shortcuts = [] if shortcut is None else [shortcut]
    return getattr(load(), f"cifar10_{op}")(*inputs, shortcuts, epsilon=EPSILON)


# Of a batch, with its own statistics: arXiv:1502.03167, algorithm 1.


def exact_norm_relu(x: Any, gamma: Any, beta: Any, shortcut: Any, upstream: Any) -> list[Any]:
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


def compute_norm_relu(dtype: Any, inputs: Any, threads: int = 2) -> list[Any]:
    """The output, statistics and gradients."""

    def build(x: Any, gamma: Any, beta: Any, shortcut: Any, upstream: Any) -> list[Any]:
        x, upstream = tf.cast(x, dtype), tf.cast(upstream, dtype)
        shortcut = None if shortcut is None else tf.cast(shortcut, dtype)
        found = call("norm_relu", x, gamma, beta, shortcut=shortcut)
        sources = [x, gamma, beta] + ([] if shortcut is None else [shortcut])
        gradients = tf.gradients(found[0], sources, upstream)
        assert found[0].dtype == gradients[0].dtype == dtype
        return [tf.cast(tensor, tf.float32) for tensor in (*found, *gradients)]

    return run(build, inputs, threads)


def batch(shape: tuple[int, ...], with_shortcut: bool, dtype: Any) -> list[Optional[Any]]:
    """Images, gamma, beta, shortcut and an upstream gradient."""
    random = np.random.default_rng(3)
    x, shortcut, upstream = (rounded(random.normal(size=shape), dtype) for _ in range(3))
    channels = shape[-1]
    x = rounded(x * random.uniform(0.1, 10, channels) + random.normal(size=channels) * 3, dtype)
    gamma, beta = (rounded(random.normal(size=channels)) for _ in range(2))
    return [x, gamma, beta, shortcut if with_shortcut else None, upstream]


@SHORTCUT
@pytest.mark.parametrize(
    "shape", [(16, 32, 32, 16), (33, 8, 8, 64), (3, 7, 5, 112), (1, 1, 2, 16)], ids=str
)
@BOTH_TYPES
def test_errors_are_roundings_of_what_is_stored_and_of_float32(dtype, shape, with_shortcut):
    inputs = batch(shape, with_shortcut, dtype)
    found = compute_norm_relu(dtype, inputs)
    assert len(found) == 6 + with_shortcut
    names = ("y", "mean", "variance", "of x", "of gamma", "of beta", "of shortcut")
    for name, value, expected in zip(names, found, exact_norm_relu(*inputs)):
        narrow = dtype == tf.bfloat16 and name in ("y", "of x")
        assert error(value, expected) < (3e-3 if narrow else 1e-6), name


def test_a_mean_far_above_the_deviation_costs_no_digits_of_the_variance():
    inputs = batch((8, 16, 16, 16), False, tf.float32)
    inputs[0] = rounded(inputs[0] + 3000)
    found = compute_norm_relu(tf.float32, inputs)
    np.testing.assert_allclose(found[2], inputs[0].var((0, 1, 2)), rtol=2e-6)


# Of a convolution, with given statistics, in evaluation: algorithm 2, line 11.


def convolution(shape: tuple[int, ...], channels: int, with_shortcut: bool, dtype: Any) -> Any:
    """Images, weights, gamma, beta, mean, variance, shortcut."""
    random = np.random.default_rng(3)
    images = rounded(random.normal(size=shape), dtype)
    weights = random.normal(size=(3, 3, shape[3], channels)) / np.sqrt(9 * shape[3])
    shortcut = rounded(random.normal(size=(*shape[:3], channels)), dtype)
    gamma, beta, mean = rounded(random.normal(size=(3, channels)))
    variance = rounded(random.uniform(0.01, 4, channels))
    given = [images, rounded(weights, dtype), gamma, beta, mean, variance]
    return [*given, shortcut if with_shortcut else None]


def exact_conv_norm_relu(
    images: Any, weights: Any, gamma: Any, beta: Any, mean: Any, variance: Any, shortcut: Any
) -> Any:
    sums = tf.nn.conv2d(images, weights, 1, "SAME").numpy()
    normal = (sums - mean) / np.sqrt(variance + EPSILON)
    return np.maximum(normal * gamma + beta + (0 if shortcut is None else shortcut), 0)


def compute_conv_norm_relu(dtype: Any, inputs: Any, threads: int = 2) -> Any:
    """The op's output."""

    def build(images: Any, weights: Any, *others: Any) -> list[Any]:
        given = [images, weights, *others]
        for index in (0, 1, 6):
            given[index] = None if given[index] is None else tf.cast(given[index], dtype)
        y = call("conv3x3_norm_relu", *given[:6], shortcut=given[6])
        assert (y.dtype, y.shape) == (dtype, [*images.shape[:3], weights.shape[3]])
        return [tf.cast(y, tf.float32)]

    (found,) = run(build, inputs, threads)
    return found


@SHORTCUT
@pytest.mark.parametrize(
    ("shape", "channels", "most"),
    [
        ((5, 32, 32, 16), 16, 1.5e-6),
        ((2, 12, 20, 24), 48, 1.5e-6),
        ((2, 15, 15, 16), 48, 3e-6),  # tiles of 5
        ((5, 3, 2, 48), 32, 1.5e-6),  # a single tile
        ((131, 7, 7, 32), 48, 1e-5),  # likewise, and two groups of images
    ],
    ids=str,
)
@BOTH_TYPES
def test_a_convolution_is_normalised_before_it_is_rounded(
    dtype, shape, channels, most, with_shortcut
):
    inputs = convolution(shape, channels, with_shortcut, dtype)
    found = compute_conv_norm_relu(dtype, inputs)
    assert error(found, exact_conv_norm_relu(*inputs)) < (most if dtype == tf.float32 else 2e-3)
    if dtype == tf.bfloat16:
        once = rounded(compute_conv_norm_relu(tf.float32, inputs), dtype)
        assert error(found, once) < 3e-4  # A second rounding is 1.7e-3 of them.


@pytest.mark.parametrize(("side", "most"), [(7, 1e-5), (8, 1.5e-6)])
def test_a_shortcut_that_others_need_stays_as_it_is(side, most):
    inputs = convolution((2, side, side, 16), 16, True, tf.float32)

    def build(*given: Any) -> list[Any]:
        # Nothing else needs the first product, so that the output may take its place.
        free, needed = given[6] * 2.0, given[6] * 3.0
        found = [call("conv3x3_norm_relu", *given[:6], shortcut=x) for x in (free, needed)]
        return [*found, needed]

    found = run(build, inputs)
    np.testing.assert_array_equal(found[2], np.float32(inputs[6]) * np.float32(3))
    for y, factor in zip(found, (2, 3)):
        assert error(y, exact_conv_norm_relu(*inputs[:6], inputs[6] * factor)) < most


# Both.


@pytest.mark.parametrize("shape", [(9, 32, 32, 16), (9, 7, 7, 16)], ids=str)
@BOTH_TYPES
def test_the_number_of_threads_changes_no_bit(dtype, shape):
    for compute, inputs in (
        (compute_norm_relu, batch(shape, True, dtype)),
        (compute_conv_norm_relu, convolution(shape, 32, True, dtype)),
    ):
        one, three = (compute(dtype, inputs, threads) for threads in (1, 3))
        for first, second in zip(one, three):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("side", [7, 8])
@BOTH_TYPES
def test_neither_hides_that_training_has_diverged(dtype, side):
    x, *others = batch((2, side, side, 16), False, dtype)
    x[1, 2, 3, 5] = np.nan
    found = compute_norm_relu(dtype, [x, *others])[0]
    assert np.isnan(found[..., 5]).all()
    assert np.isfinite(np.delete(found, 5, axis=3)).all()
    inputs = convolution((2, side, side, 16), 16, True, dtype)
    inputs[6][1, 2, 3, 5] = np.nan
    found = compute_conv_norm_relu(dtype, inputs)
    assert np.isnan(found[1, 2, 3, 5])
    assert np.isnan(found).sum() == 1


@pytest.mark.parametrize(
    ("of", "shape", "message"),
    [
        ("images", [2, 8, 8, 20], "channels in multiples of 8 from 16 on"),
        ("weights", [3, 3, 16, 24], "filters come in multiples of 16"),
        ("weights", [1, 3, 16, 16], r"weights have the shape \[1,3,16,16\], not \[3,3,16,16\]"),
        ("variance", [1], r"a channel's numbers have the shape \[1\], not \[16\]"),
        ("shortcut", [2, 8, 4, 16], r"one shortcut of the shape \[2,8,8,16\]"),
        ("x", [2, 8, 8, 24], r"channels in multiples of 16 and is not of shape \[2,8,8,24\]"),
        ("x", [0, 8, 8, 0], r"channels in multiples of 16 and is not of shape \[0,8,8,0\]"),
        ("gamma", [32], r"have the shape \[32\], not \[16\]"),
    ],
)
def test_other_sizes_are_refused(of, shape, message):
    numbers = {name: [16] for name in ("gamma", "beta", "mean", "variance")}
    shapes = {"images": [2, 8, 8, 16], "weights": [3, 3, 16, 16], **numbers}
    shapes = {**shapes, "shortcut": [2, 8, 8, 16], "x": [2, 8, 8, 16], of: shape}
    with tf.Graph().as_default(), tf.Session() as session:
        given = {name: tf.zeros(shape) for name, shape in shapes.items()}
        x, shortcut = given.pop("x"), given.pop("shortcut")
        if of in ("x", "gamma"):
            y = call("norm_relu", x, given["gamma"], given["beta"], shortcut=shortcut)[0]
        else:
            y = call("conv3x3_norm_relu", *given.values(), shortcut=shortcut)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(y)


@SHORTCUT
@pytest.mark.parametrize(
    ("settings", "fused"),
    [
        ({"training": False}, "Cifar10Conv3x3NormRelu"),
        ({"training": False, "norm": "off"}, None),
        ({"training": True}, "Cifar10NormRelu"),
        ({"training": True, "norm": "off"}, None),
    ],
    ids=["evaluation", "without them", "training", "off"],
)
def test_layers_compute_the_same_with_and_without_them(settings, fused, with_shortcut):
    images, *_, shortcut = convolution((6, 8, 8, 16), 32, with_shortcut, tf.float32)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        found = []
        for kernels in (CUSTOM_OPS, TENSORFLOW):
            layers = Layers(kernels=kernels, norm_epsilon=EPSILON, **settings)
            with tf.variable_scope("model", reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
                added = None if shortcut is None else tf.constant(np.float32(shortcut))
                x = tf.constant(np.float32(images))
                y = layers.conv_norm_relu(x, 32, 3, shortcut=added, first_scale=0.5)
            gradients = tf.gradients(y, tf.trainable_variables()) if layers.training else []
            found.append([y, *gradients, *layers.statistics])
        random = np.random.default_rng(4)
        for variable in tf.global_variables():
            variable.load(random.uniform(0.1, 1, variable.shape).astype(np.float32), session)
        ours, theirs = (tf.nest.flatten(session.run(tensors)) for tensors in found)
    types = {op.type for op in graph.get_operations()}
    assert types & {"Cifar10Conv3x3NormRelu", "Cifar10NormRelu"} == ({fused} if fused else set())
    for own, other in zip(ours, theirs):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-3)


# GELU.

VALUES = np.linspace(-6, 6, 241).astype(np.float32)
BOTH = pytest.mark.parametrize("own", [False, True], ids=["tensorflow", "own"])


def run_gelu(own: bool, values: Any, dtype: Any = tf.float32) -> tuple[Any, Any]:
    """The function and, for upstream gradients of 3, its gradient, in float32."""

    def build(x: Any) -> list[Any]:
        x = tf.cast(x, dtype)
        y = gelu(x, own)
        (gradient,) = tf.gradients(y, x, tf.fill(np.shape(values), tf.cast(3, dtype)))
        assert (y.dtype, gradient.dtype) == (dtype, dtype)
        assert x.shape == y.shape == gradient.shape
        return [tf.cast(y, tf.float32), tf.cast(gradient, tf.float32)]

    found, gradient = run(build, [np.float32(values)])
    return found, gradient


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
    assert (np.abs(found - expected) / np.maximum(np.abs(values), 1e-30)).max() < 2e-7
    assert np.abs(gradient / 3 - slope).max() < 5e-7


@BOTH_TYPES
def test_own_gelu_of_numbers_at_the_edge(dtype):
    values = [math.inf, -math.inf, 3e38, -3e38, 1e-40, -1e-40, 0.0]
    found, gradient = run_gelu(True, values, dtype)
    assert found[0] == math.inf
    np.testing.assert_allclose(found[2:4], [3e38, 0.0], rtol=2**-8, atol=1e-30)
    # Subnormal numbers may count as zero.
    np.testing.assert_allclose([found[1], *found[4:]], 0.0, atol=2e-37)
    np.testing.assert_allclose(gradient, [3.0, 0.0, 3.0, 0.0, 1.5, 1.5, 1.5], atol=1e-30)


@BOTH_TYPES
@BOTH
def test_gelu_does_not_hide_that_training_has_diverged(own, dtype):
    assert np.isnan(run_gelu(own, [math.nan, -math.nan], dtype)).all()
