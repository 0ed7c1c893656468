"""A convolution whose outputs are normalised, in C++, against its formula in float64."""

from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.convolution import ConvAlgorithms
from cifar10.ops.layers import Layers
from cifar10.ops.normalisation import conv_norm_relu

EPSILON = 1e-3
FUSED = "Cifar10Conv3x3NormRelu"
BOTH_TYPES = pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])

pytestmark = pytest.mark.usefixtures("compiled_kernels")


def random_inputs(
    shape: tuple[int, ...], channels: int, with_shortcut: bool, dtype: Any
) -> list[Optional[Any]]:
    """Images, weights, gamma, beta, mean, variance, shortcut; numbers of the type, as float32."""
    random = np.random.default_rng(3)
    images = random.normal(size=shape)
    weights = random.normal(size=(3, 3, shape[3], channels)) / np.sqrt(9 * shape[3])
    shortcut = random.normal(size=(*shape[:3], channels))
    gamma, beta, mean = random.normal(size=(3, channels))
    variance = random.uniform(0.01, 4, channels)
    narrow = [
        np.float32(np.asarray(one, dtype.as_numpy_dtype)) for one in (images, weights, shortcut)
    ]
    numbers = [np.float32(one) for one in (gamma, beta, mean, variance)]
    return [*narrow[:2], *numbers, narrow[2] if with_shortcut else None]


def exact(
    images: Any, weights: Any, gamma: Any, beta: Any, mean: Any, variance: Any, shortcut: Any
):
    """The sums that define a convolution, then arXiv:1502.03167, algorithm 2, line 11; float64."""
    _, height, width, _ = images.shape
    padded = np.pad(np.float64(images), [(0, 0), (1, 1), (1, 1), (0, 0)])
    sums = sum(
        padded[:, row : row + height, column : column + width] @ np.float64(weights[row, column])
        for row in range(3)
        for column in range(3)
    )
    normal = (sums - mean) / np.sqrt(np.float64(variance) + EPSILON)
    return np.maximum(normal * gamma + beta + (0 if shortcut is None else shortcut), 0)


def compute(inputs: Any, dtype: Any, threads: int = 2) -> Any:
    """The op's output as float32."""
    config = tf.ConfigProto(intra_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        given: list[Any] = [
            None if value is None else tf.placeholder_with_default(value, value.shape)
            for value in inputs
        ]
        for index in (0, 1, 6):
            given[index] = None if given[index] is None else tf.cast(given[index], dtype)
        y = conv_norm_relu(*[*given, EPSILON])
        assert y.dtype == dtype
        assert y.shape == [*given[0].shape[:3], given[1].shape[3]]
        return session.run(tf.cast(y, tf.float32))


def error(found: Any, expected: Any) -> float:
    """Root mean square, by the size of what is expected."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


@pytest.mark.parametrize("with_shortcut", [False, True], ids=["plain", "with a shortcut"])
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
def test_errors_are_roundings_of_what_is_stored_and_of_float32(
    dtype, shape, channels, most, with_shortcut
):
    inputs = random_inputs(shape, channels, with_shortcut, dtype)
    found = compute(inputs, dtype)
    assert error(found, exact(*inputs)) < (most if dtype == tf.float32 else 2e-3)
    if dtype == tf.bfloat16:
        once = compute(inputs, tf.float32).astype(tf.bfloat16.as_numpy_dtype)
        assert error(found, np.float32(once)) < 3e-4  # A second rounding is 1.7e-3 of them.


@pytest.mark.parametrize("shape", [(9, 32, 32, 16), (9, 7, 7, 16)], ids=str)
@BOTH_TYPES
def test_the_number_of_threads_changes_no_bit(dtype, shape):
    inputs = random_inputs(shape, 32, True, dtype)
    np.testing.assert_array_equal(compute(inputs, dtype, 1), compute(inputs, dtype, 3))


@pytest.mark.parametrize("side", [7, 8])
@BOTH_TYPES
def test_it_does_not_hide_that_training_has_diverged(dtype, side):
    inputs = random_inputs((2, side, side, 16), 16, True, dtype)
    inputs[6][1, 2, 3, 5] = np.nan
    found = compute(inputs, dtype)
    assert np.isnan(found[1, 2, 3, 5])
    assert np.isnan(found).sum() == 1


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("which", [2, 3, 4, 5], ids=["gamma", "beta", "mean", "variance"])
@BOTH_TYPES
def test_every_nan_of_a_channels_numbers_is_one_in_its_outputs(dtype, which, side):
    inputs = random_inputs((2, side, side, 16), 16, True, dtype)
    inputs[which].view(np.uint32)[5] = 0xFFFFFFFF  # a GPU's NaN with a sign
    found = compute(inputs, dtype)
    assert np.isnan(found[..., 5]).all()
    assert np.isfinite(np.delete(found, 5, axis=3)).all()


@pytest.mark.parametrize(("side", "most"), [(7, 1e-5), (8, 1.5e-6)])
def test_a_shortcut_that_others_need_stays_as_it_is(side, most):
    inputs = random_inputs((2, side, side, 16), 16, True, tf.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        # Of constants, TensorFlow would compute the products before the graph runs, and keep them.
        *others, given = (tf.placeholder_with_default(one, one.shape) for one in inputs)
        # Nothing else needs the first product, so that the output may take its place.
        free, needed = given * 2.0, given * 3.0
        of_free, of_needed = (conv_norm_relu(*others, one, EPSILON) for one in (free, needed))
        found = session.run([of_free, of_needed, needed])
    np.testing.assert_array_equal(found[2], inputs[6] * np.float32(3))
    for y, factor in zip(found, (2, 3)):
        assert error(y, exact(*inputs[:6], np.float64(inputs[6]) * factor)) < most


@pytest.mark.parametrize(
    ("of", "shape", "message"),
    [
        ("images", [2, 8, 8, 20], "channels in multiples of 8 from 16 on"),
        ("weights", [3, 3, 16, 24], "filters come in multiples of 16"),
        ("weights", [1, 3, 16, 16], r"weights have the shape \[1,3,16,16\], not \[3,3,16,16\]"),
        ("gamma", [32], r"a channel's numbers have the shape \[32\], not \[16\]"),
        ("variance", [1], r"a channel's numbers have the shape \[1\], not \[16\]"),
        ("shortcut", [2, 8, 4, 16], r"one shortcut of the shape \[2,8,8,16\]"),
    ],
)
def test_other_sizes_are_refused(of, shape, message):
    numbers = {name: [16] for name in ("gamma", "beta", "mean", "variance")}
    shapes = {"images": [2, 8, 8, 16], "weights": [3, 3, 16, 16], **numbers}
    shapes = {**shapes, "shortcut": [2, 8, 8, 16], of: shape}
    with tf.Graph().as_default(), tf.Session() as session:
        y = conv_norm_relu(*map(tf.zeros, shapes.values()), EPSILON)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(y)


@pytest.mark.parametrize("with_shortcut", [False, True], ids=["plain", "with a shortcut"])
@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ({"training": False}, True),
        ({"training": False, "norm": "off"}, False),
        ({"training": True}, False),
    ],
    ids=["evaluation", "without them", "training"],
)
def test_layers_compute_the_same_with_and_without_it(settings, may, with_shortcut):
    images, *_, shortcut = random_inputs((6, 8, 8, 16), 32, with_shortcut, tf.float32)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        found = []
        for own in (True, False):
            algorithms = ConvAlgorithms(own=own)
            layers = Layers(algorithms=algorithms, norm_epsilon=EPSILON, **settings)
            with tf.variable_scope("model", reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
                y = layers.conv(tf.constant(images), 32, 3)
                added = None if shortcut is None else tf.constant(shortcut)
                found.append(layers.batch_norm_relu(y, added, first_scale=0.5))
        random = np.random.default_rng(4)
        for variable in tf.global_variables():
            variable.load(random.uniform(0.1, 1, variable.shape).astype(np.float32), session)
        ours, theirs = session.run(found)
    assert any(op.type == FUSED for op in graph.get_operations()) == may
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
