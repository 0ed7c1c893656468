"""Gradients of convolutions that are computed another way."""

from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops import convolution
from cifar10.ops.convolution import ConvAlgorithms

SETTINGS = {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": "NHWC"}
RANDOM = np.random.default_rng(5)


def numbers(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def compute(x: Any, kernel: Any, allowed: ConvAlgorithms, early: Any = None) -> Any:
    """By the algorithm that is chosen."""
    algorithm = convolution.choose(x, kernel, SETTINGS, allowed)
    return convolution.convolve(algorithm, x, kernel, SETTINGS, early)


def gradients(
    by_images: bool, x: Any, kernel: Any, dtype: Any, early: Optional[bool] = None
) -> Any:
    """Gradients for input and filters of a loss that counts each output differently; the ops."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        inputs = [tf.constant(x), tf.constant(kernel)]
        y = compute(
            tf.cast(inputs[0], dtype),
            tf.cast(inputs[1], dtype),
            ConvAlgorithms(by_images=by_images),
            None if early is None else tf.constant(early),
        )
        factors = np.random.default_rng(6).normal(size=y.shape).astype(np.float32)
        found = tf.gradients(tf.reduce_sum(tf.cast(y, tf.float32) * factors), inputs)
        return session.run(found), {op.type for op in graph.get_operations()}


@pytest.mark.parametrize(("count", "side"), [(16, 5), (17, 1)])
def test_the_filters_gradient_is_tensorflows(count: int, side: int):
    x, kernel = numbers(count, side, side, 64), numbers(3, 3, 64, 72)
    (expected_x, expected), _ = gradients(False, x, kernel, tf.float32)
    (found_x, found), ops = gradients(True, x, kernel, tf.float32)
    assert "Conv2DBackpropFilter" not in ops
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found_x, expected_x)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("by_images", [True, False])
def test_after_the_first_epochs_the_input_has_no_gradient(early: bool, by_images: bool):
    x, kernel = numbers(16, 4, 4, 64), numbers(3, 3, 64, 64)
    (expected_x, expected), _ = gradients(False, x, kernel, tf.float32)
    (found_x, found), _ = gradients(by_images, x, kernel, tf.float32, early)
    np.testing.assert_array_equal(found_x, expected_x if early else np.zeros_like(x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "kernel", "changed"),
    [
        ((64, 15, 15, 24), (3, 3, 24, 64), {}),
        ((64, 15, 15, 64), (1, 1, 64, 64), {}),
        ((64, 15, 15, 64), (3, 3, 64, 64), {"strides": [1, 2, 2, 1]}),
        ((64, 15, 15, 64), (3, 3, 64, 64), {"padding": "VALID"}),
        ((64, 64, 15, 15), (3, 3, 64, 64), {"data_format": "NCHW"}),
        ((None, 15, 15, 64), (3, 3, 64, 64), {}),
        ((8, 3, 3, 64), (3, 3, 64, 64), {}),
    ],
)
def test_what_does_not_fit_is_left_to_tensorflow(shape: Any, kernel: Any, changed: dict[str, Any]):
    with tf.Graph().as_default():
        x, weights = tf.placeholder(tf.float32, shape), tf.zeros(kernel)
        assert not convolution.fits(x, weights, {**SETTINGS, **changed})
        assert convolution.pieces_of(x, weights, {**SETTINGS, **changed}) == 0


ALL = ConvAlgorithms(own=True, by_images=True)


@pytest.mark.parametrize(
    ("images", "channels", "allowed", "name"),
    [
        ((64, 8, 8), 64, ALL, "own_kernels"),
        ((64, 7, 7), 64, ALL, "own_kernels"),
        ((64, 7, 7), 64, ConvAlgorithms(own=True, pairs=True), "own_pairs"),
        ((64, 9, 9), 64, ConvAlgorithms(own=True, pairs=True), "tensorflow"),
        ((8, 3, 3), 64, ALL, "own_kernels"),
        # At 9x9 tiles cover too much beside the image.
        ((64, 9, 9), 64, ALL, "by_images"),
        ((8, 9, 9), 64, ALL, "tensorflow"),
        ((64, 9, 9), 24, ALL, "tensorflow"),
        ((64, 8, 8), 64, ConvAlgorithms(by_images=True), "by_images"),
        ((64, 8, 8), 64, ConvAlgorithms(), "tensorflow"),
    ],
)
def test_the_first_algorithm_that_is_allowed_and_fits_is_chosen(
    images: Any, channels: int, allowed: ConvAlgorithms, name: str
):
    with tf.Graph().as_default():
        x, weights = tf.zeros([*images, channels]), tf.zeros([3, 3, channels, 64])
        assert convolution.choose(x, weights, SETTINGS, allowed) == name
