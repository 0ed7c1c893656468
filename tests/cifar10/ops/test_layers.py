"""Layers: shapes, layouts and statistics against numpy."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.layers import Layers
from cifar10.ops.variables import (
    BIAS,
    KERNEL,
    MEAN,
    NON_TRAINABLE,
    NORM,
    OFFSET,
    TRAINED_UNTIL,
    VARIANCE,
    Recorder,
)

IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8, 4)).astype(np.float32)


def run(build: Any, layers: Layers) -> np.ndarray:
    with tf.Graph().as_default(), tf.Session() as session:
        output = build(layers, tf.constant(IMAGES))
        session.run(tf.global_variables_initializer())
        return session.run(output)


def network(layers: Layers, x: Any) -> Any:
    x = layers.batch_norm(layers.conv(layers.cast_images(x), 6, 3, 2))
    x = layers.pad_channels(layers.average_pool(x, 2), 9)
    return layers.dense(layers.global_average_pool(x), 3)


def pooled(layers: Layers, x: Any) -> Any:
    x = layers.max_pool(layers.whitening(layers.cast_images(x), 2), 3)
    return layers.global_average_pool(x)


@pytest.mark.parametrize(("build", "counts"), [(network, (6, 5)), (pooled, (4, 3))])
def test_channels_first_computes_the_same_as_channels_last(onednn: None, build, counts):
    # oneDNN keeps its pooling primitives by logical shape, whatever the layout, so that the second
    # layout of one shape in a process would get the first one's: each has a batch size of its own.
    def run_with_fixed_weights(data_format: str, count: int) -> np.ndarray:
        random = np.random.default_rng(1)
        with tf.Graph().as_default(), tf.Session() as session:
            output = build(Layers(False, data_format), tf.constant(IMAGES[:count]))
            session.run(tf.global_variables_initializer())
            for variable in tf.global_variables():
                value = np.abs(random.normal(size=variable.shape)).astype(np.float32)
                variable.load(value, session)
            return session.run(output)

    last = run_with_fixed_weights("channels_last", counts[0])
    first = run_with_fixed_weights("channels_first", counts[1])
    assert len(last) == counts[0]
    np.testing.assert_allclose(last[: counts[1]], first, rtol=1e-4, atol=1e-5)


def test_each_variable_is_known_by_its_name_shape_and_kind():
    recorder = Recorder()
    with tf.Graph().as_default(), tf.variable_scope("model"):
        network(Layers(training=True, source=recorder), tf.constant(IMAGES))
    assert [(spec.name, spec.shape, spec.kind) for spec in recorder.specs] == [
        ("model/conv/kernel", (3, 3, 4, 6), KERNEL),
        ("model/batch_norm/gamma", (6,), NORM),
        ("model/batch_norm/beta", (6,), OFFSET),
        ("model/batch_norm/moving_mean", (6,), MEAN),
        ("model/batch_norm/moving_variance", (6,), VARIANCE),
        ("model/dense/kernel", (9, 3), KERNEL),
        ("model/dense/bias", (3,), BIAS),
    ]


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_scale_and_offset_are_a_channels_without_normalisation(data_format: str):
    gamma, beta = np.array([1, 2, 3, 4], np.float32), np.array([0, -1, 5, 1], np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        layers = Layers(True, data_format, norm="off")
        output = layers.batch_norm(layers.cast_images(tf.constant(IMAGES)))
        first = data_format == "channels_first"
        session.run(tf.global_variables_initializer())
        for variable in tf.trainable_variables():
            variable.load(gamma if variable.op.name.endswith("gamma") else beta, session)
        scaled = session.run(tf.transpose(output, [0, 2, 3, 1]) if first else output)
    np.testing.assert_allclose(scaled, IMAGES * gamma + beta, rtol=1e-5, atol=1e-5)


def test_batch_norm_without_a_scale_has_an_offset_alone():
    def build(layers: Layers, x: Any) -> Any:
        output = layers.batch_norm(x, scale=False)
        assert [variable.op.name for variable in tf.trainable_variables()] == ["batch_norm/beta"]
        return output

    output = run(build, Layers(training=False))
    np.testing.assert_allclose(output, IMAGES / np.sqrt(1 + 1e-5), rtol=1e-5)


def test_pools_take_whole_windows_only():
    squares = np.arange(25, dtype=np.float32).reshape(1, 5, 5, 1)
    with tf.Graph().as_default(), tf.Session() as session:
        largest = Layers(True).max_pool(tf.constant(squares), 2)
        mean = Layers(True).average_pool(tf.constant(squares), 2)
        assert session.run(largest)[0, :, :, 0].tolist() == [[6, 8], [16, 18]]
        assert session.run(mean)[0, :, :, 0].tolist() == [[3, 5], [13, 15]]


def test_added_channels_are_zeros_half_on_each_side():
    output = run(lambda layers, x: layers.pad_channels(x, 9), Layers(True))
    assert output.shape == (6, 8, 8, 9)
    np.testing.assert_array_equal(output[..., 2:6], IMAGES)
    assert (output[..., [0, 1, 6, 7, 8]] == 0).all()


def test_whitening_projects_every_patch_and_adds_a_bias():
    recorder = Recorder()
    with tf.Graph().as_default():
        Layers(True, source=recorder).whitening(tf.zeros([1, 8, 8, 4]), 2)
    assert [(spec.name, spec.shape, spec.kind) for spec in recorder.specs] == [
        ("whitening/projection", (2, 2, 4, 32), NON_TRAINABLE),
        ("whitening/bias", (32,), TRAINED_UNTIL),
    ]
    with tf.Graph().as_default(), tf.Session() as session:
        output = Layers(True).whitening(tf.constant(IMAGES), 2)
        projection, bias = tf.global_variables()
        session.run(tf.global_variables_initializer())
        assert (session.run(projection) == 0).all()
        assert (session.run(bias) == 0).all()
        picks = np.zeros((2, 2, 4, 32), np.float32)
        picks[1, 0, 3, 5] = 2.0  # output 5: twice channel 3 of the patch's lower left pixel
        projection.load(picks, session)
        bias.load(np.arange(32, dtype=np.float32), session)
        found = session.run(output)
    assert found.shape == (6, 7, 7, 32)
    np.testing.assert_allclose(found[..., 5], 2 * IMAGES[:, 1:, :7, 3] + 5, rtol=1e-6)
    assert (found[..., 31] == 31).all()


def test_first_weights_are_hes_and_glorots():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(1)
        layers = Layers(True)
        layers.conv(tf.zeros([1, 8, 8, 64]), 128, 3)
        layers.dense(tf.zeros([1, 500]), 100)
        session.run(tf.global_variables_initializer())
        kernel, dense, bias = session.run(tf.global_variables())
    # Normal numbers of variance 2 / fan in, without those beyond two sigma of the whole bell.
    assert kernel.std() == pytest.approx(np.sqrt(2 / (9 * 64)), rel=0.01)
    assert np.abs(kernel).max() < 2 * np.sqrt(2 / (9 * 64)) / 0.879
    assert np.abs(dense).max() == pytest.approx(np.sqrt(6 / 600), rel=0.01)
    assert (bias == 0).all()
