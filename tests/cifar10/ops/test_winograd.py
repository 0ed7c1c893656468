"""Convolutions by Winograd's minimal filtering: as TensorFlow's, to a known error."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.ops import convolution, winograd
from tests.cifar10 import steps

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize(("side", "direct", "made"), [(7, 441, 81), (15, 2025, 441), (3, 81, 25)])
def test_it_says_how_many_products_it_saves(side: int, direct: int, made: int):
    with tf.Graph().as_default():
        assert winograd.saving(tf.zeros([2, side, side, 5])) == direct / made


def direct(x: Any, weights: Any) -> Any:
    return tf.nn.conv2d(x, weights, 1, "SAME")


def outputs_and_gradients(way: Any, values: Any, dtype: Any) -> list[Any]:
    """Outputs, and gradients for input and filters of a loss that counts each output differently.

    Args:
      way: makes the convolution.
      values: images, filters, and a factor for each output.
      dtype: that all of it has.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        x, weights, factors = (tf.constant(value, dtype) for value in values)
        y = way(x, weights)
        return session.run([y, *tf.gradients(y, [x, weights], factors)])


def numbers(count: int, sides: tuple[int, int], inputs: int, filters: int) -> list[Any]:
    """As behind an activation: inputs that are not negative."""
    shapes = [(count, *sides, inputs), (3, 3, inputs, filters), (count, *sides, filters)]
    x, weights, factors = (RANDOM.normal(size=shape) for shape in shapes)
    return [np.maximum(x, 0), weights, factors]


@pytest.mark.parametrize("sides", [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (15, 31), (13, 1)])
def test_it_is_tensorflows_convolution(sides: tuple[int, int]):
    values = numbers(4, sides, 3, 5)
    expected = outputs_and_gradients(direct, values, tf.float64)
    found = outputs_and_gradients(winograd.convolve, values, tf.float64)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("side", "bound"), [(3, 1e-6), (7, 2e-5), (8, 2e-6), (15, 4e-6)])
def test_in_float32_its_error_is_bounded(side: int, bound: float):
    values = numbers(8, (side, side), 64, 64)
    exact = outputs_and_gradients(direct, values, tf.float64)
    found = outputs_and_gradients(winograd.convolve, values, tf.float32)
    for one, other in zip(found, exact):
        assert np.sqrt(np.mean((one - other) ** 2) / np.mean(other**2)) < bound


@pytest.mark.parametrize(
    ("side", "products"), [(3, 25), (7, 81), (8, 144), (15, 441), (16, 576), (31, 2025)]
)
def test_an_image_takes_the_fewest_products(side: int, products: int):
    values = numbers(1, (side, side), 1, 1)
    with tf.Graph().as_default() as graph:
        winograd.convolve(*(tf.constant(value) for value in values[:2]))
        shapes = [
            op.outputs[0].shape for op in graph.get_operations() if op.type == "BatchMatMulV2"
        ]
    assert [shape.num_elements() for shape in shapes if shape.rank == 5] == [products]


@pytest.mark.parametrize(
    ("count", "side", "inputs", "filters", "pieces"),
    [
        (512, 15, 64, 64, 32),
        (512, 15, 64, 256, 16),
        (512, 7, 256, 256, 1),
        (64, 8, 64, 64, 1),
        (37, 15, 64, 64, 1),
    ],
)
def test_a_piece_has_more_tiles_than_its_filters_have_channels(
    count: int, side: int, inputs: int, filters: int, pieces: int
):
    with tf.Graph().as_default() as graph:
        x, weights = tf.zeros([count, side, side, inputs]), tf.zeros([3, 3, inputs, filters])
        y = winograd.convolve(x, weights)
        (split,) = (op for op in graph.get_operations() if op.type == "Split")
    assert len(split.outputs) == pieces
    assert y.shape == [count, side, side, filters]


def test_the_same_numbers_give_the_same_bits():
    values = numbers(32, (15, 15), 64, 64)
    first, again = (outputs_and_gradients(winograd.convolve, values, tf.float32) for _ in range(2))
    for one, other in zip(first, again):
        np.testing.assert_array_equal(one, other)


def test_training_follows_that_with_tensorflows_convolutions(monkeypatch: pytest.MonkeyPatch):
    projection = RANDOM.normal(0, 0.4, (2, 2, 3, 24)).astype(np.float32)
    values = {"model/whitening/projection": projection}
    config = TrainConfig(
        model="fastnet", train_batch_size=32, schedule="constant", learning_rate=0.01
    )

    def train() -> tuple[Any, list[float]]:
        """How five steps move the weights, and their losses."""
        with steps.training(config, steps.make_plan(1), values=values) as run:
            before = run.weights
            batches = steps.make_batches(5, 32)
            losses = [run.step(batch, [run.spec.loss])[0] for batch in batches]
            return run.weights - before, losses

    found, found_losses = train()
    monkeypatch.setattr(convolution, "fits", lambda *_: False)
    expected, expected_losses = train()
    np.testing.assert_allclose(found_losses, expected_losses, rtol=1e-5)
    assert 0 < np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)
