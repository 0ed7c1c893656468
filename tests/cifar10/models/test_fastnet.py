"""fastnet: its shape, its first weights, and what of it trains when."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.models.fastnet import PROJECTION, fastnet, whitening_projection
from cifar10.ops.layers import Layers
from cifar10.ops.variables import KERNEL, NON_TRAINABLE, PartialIdentity, Recorder


def build(layers: Layers) -> Any:
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
        return fastnet(layers, tf.zeros([2, 32, 32, 3]), (64, 256, 256), 2)


@pytest.mark.parametrize(
    ("name", "filters", "convolutions"),
    [("fastnet", (64, 256, 256), 2), ("fastnet_large", (128, 384, 512), 3)],
)
def test_three_groups_of_convolutions_behind_the_whitening_one(name, filters, convolutions):
    with tf.Graph().as_default() as graph, tf.variable_scope("model"):
        logits = models.network(TrainConfig(model=name))(Layers(True), tf.zeros([2, 32, 32, 3]))
        shapes = [op.outputs[0].shape[1:] for op in graph.get_operations() if op.type == "Conv2D"]
        sizes = {var.op.name: var.shape.num_elements() for var in tf.trainable_variables()}
    assert logits.shape.as_list() == [2, 10]
    expected, inputs, kernels = [[31, 31, 24]], 24, 0
    for side, count in zip((31, 15, 7), filters):
        expected += [[side, side, count], *[[side // 2, side // 2, count]] * (convolutions - 1)]
        kernels += 9 * (inputs * count + (convolutions - 1) * count**2)
        inputs = count
    assert [shape.as_list() for shape in shapes] == expected
    # The kernels, the head, the whitening's bias, and an offset for each normalisation.
    assert sum(sizes.values()) == kernels + 10 * inputs + 24 + convolutions * sum(filters)
    assert [name for name in sizes if "gamma" in name] == []
    assert "model/whitening/projection" not in sizes
    assert "model/whitening/bias" in sizes


@pytest.mark.parametrize(("inputs", "filters"), [(4, 6), (6, 6), (6, 4)])
def test_filters_begin_by_passing_their_inputs_on(inputs, filters):
    with tf.Graph().as_default(), tf.Session() as session:
        images = tf.random.stateless_normal([2, 5, 5, inputs], [1, 2])
        kernel = PartialIdentity(1 / 3, "fan_in", "uniform", seed=1)((3, 3, inputs, filters))
        passed_on = tf.nn.conv2d(images, kernel, 1, "SAME")
        before, after, weights = session.run([images, passed_on, kernel])
    passed = min(inputs, filters)
    np.testing.assert_allclose(after[..., :passed], before[..., :passed], rtol=1e-6)
    others = weights[..., passed:]
    bound = 1 / np.sqrt(9 * inputs)
    assert others.shape[-1] == filters - passed
    assert others.size == 0 or 0.9 * bound < np.abs(others).max() <= bound


def test_every_3x3_convolution_begins_with_passing_its_inputs_on():
    recorder = Recorder()
    with tf.Graph().as_default():
        build(Layers(True, source=recorder))
    first = {spec.name: spec.initializer for spec in recorder.specs if spec.kind == KERNEL}
    assert {spec.name: spec.shape for spec in recorder.specs if spec.kind == NON_TRAINABLE} == {
        PROJECTION: (2, 2, 3, 24)
    }
    head = first.pop("model/head/dense/kernel").get_config()
    assert [type(initializer) for initializer in first.values()] == 6 * [PartialIdentity]
    assert (head["scale"], head["mode"], head["distribution"]) == (1 / 3, "fan_in", "uniform")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Images whose neighbouring pixels and channels go together, as in photographs."""
    random = np.random.default_rng(0)
    coarse = random.standard_normal((200, 9, 9, 3)).repeat(4, axis=1).repeat(4, axis=2)
    mixed = coarse @ random.standard_normal((3, 3)) + 0.3 * random.standard_normal((200, 36, 36, 3))
    return mixed[:, 2:34, 2:34].astype(np.float32)


def outputs(images: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution's outputs: one row an image and place, one column a filter."""
    found = tf.nn.conv2d(images.astype(np.float64), kernel.astype(np.float64), 1, "VALID")
    return found.numpy().reshape(-1, kernel.shape[-1])


@pytest.mark.parametrize("size", [2, 3])
def test_outputs_are_uncorrelated_and_have_variance_1(images, size):
    kernel = whitening_projection(images, size)
    half = 3 * size * size
    assert kernel.shape == (size, size, 3, 2 * half)
    assert kernel.dtype == np.float32
    rows = outputs(images, kernel)[:, :half]
    np.testing.assert_allclose(rows.T @ rows / len(rows), np.eye(half), atol=0.01)
    before = outputs(images, np.eye(half).reshape(size, size, 3, half))
    covariance = before.T @ before / len(before)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() > 0.5


def test_fastnets_projection_is_made_from_5000_images(images):
    asked = []

    def sample(count):
        asked.append(count)
        return images

    values = models.find("fastnet").first_values(sample)
    assert asked == [5000]
    assert list(values) == [PROJECTION]
    np.testing.assert_array_equal(values[PROJECTION], whitening_projection(images, 2))
