"""Layers: shapes, layouts and statistics against numpy."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.layers import Layers
from cifar10.variables import BIAS, KERNEL, NORM, OFFSET, Recorder, Section, Slices

IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8, 4)).astype(np.float32)


def run(build: Any, layers: Layers) -> np.ndarray:
    with tf.Graph().as_default(), tf.Session() as session:
        output = build(layers, tf.constant(IMAGES))
        session.run(tf.global_variables_initializer())
        return session.run(output)


def test_batch_norm_in_training_gives_each_channel_mean_0_and_deviation_1():
    output = run(lambda layers, x: layers.batch_norm(x), Layers(training=True))
    np.testing.assert_allclose(output.mean((0, 1, 2)), np.zeros(4), atol=1e-5)
    np.testing.assert_allclose(output.std((0, 1, 2)), np.ones(4), atol=1e-4)


def test_batch_norm_outside_training_uses_the_moving_statistics():
    output = run(lambda layers, x: layers.batch_norm(x), Layers(training=False))
    # They start as mean 0 and variance 1.
    np.testing.assert_allclose(output, IMAGES / np.sqrt(1 + 1e-5), rtol=1e-5)


def test_batch_norm_reports_the_population_variance_of_its_tower():
    layers = Layers(training=True)
    variance = run(
        lambda _, x: layers.batch_norm(x) is None or layers.statistics[0].variance, layers
    )
    np.testing.assert_allclose(variance, IMAGES.var((0, 1, 2)), rtol=1e-4)


def test_shared_statistics_with_one_tower_are_those_of_plain_batch_norm():
    shared = Layers(training=True, norm="sync", merge=lambda tensor: tensor)
    one, other = (run(lambda layers, x: layers.batch_norm(x), ls) for ls in (shared, Layers(True)))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_shared_statistics_need_a_merge_function():
    with pytest.raises(ValueError, match="norm='sync' needs a merge function"):
        run(lambda layers, x: layers.batch_norm(x), Layers(training=True, norm="sync"))


def test_norm_off_only_scales():
    output = run(lambda layers, x: layers.batch_norm(x), Layers(training=True, norm="off"))
    np.testing.assert_array_equal(output, IMAGES)


def network(layers: Layers, x: Any) -> Any:
    x = layers.batch_norm(layers.conv(layers.cast_images(x), 6, 3, 2))
    x = layers.pad_channels(layers.average_pool(x, 2), 9)
    return layers.dense(layers.global_average_pool(x), 3)


def test_channels_first_computes_the_same_as_channels_last():
    # oneDNN keeps its pooling primitives by logical shape, whatever the layout, so that the second
    # layout of one shape in a process would get the first one's: each has a batch size of its own.
    def run_with_fixed_weights(data_format: str, count: int) -> np.ndarray:
        random = np.random.default_rng(1)
        with tf.Graph().as_default(), tf.Session() as session:
            output = network(Layers(False, data_format), tf.constant(IMAGES[:count]))
            session.run(tf.global_variables_initializer())
            for variable in tf.trainable_variables():
                variable.load(random.normal(size=variable.shape).astype(np.float32), session)
            return session.run(output)

    last = run_with_fixed_weights("channels_last", 6)
    first = run_with_fixed_weights("channels_first", 5)
    assert last.shape == (6, 3)
    np.testing.assert_allclose(last[:5], first, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_narrow_activations_keep_variables_and_statistics_in_float32(dtype):
    with tf.Graph().as_default():
        layers = Layers(training=True, compute_dtype=dtype)
        x = layers.batch_norm(layers.conv(layers.cast_images(tf.constant(IMAGES)), 6, 3))
        hidden = layers.dense(tf.reshape(x, [6, 384]), 3)
        assert (x.dtype, hidden.dtype) == (dtype, dtype)
        assert layers.global_average_pool(x).dtype == tf.float32
        assert {variable.dtype for variable in tf.global_variables()} == {tf.float32}
        assert layers.statistics[0].mean.dtype == tf.float32


def test_each_variable_is_known_by_its_name_shape_and_kind():
    recorder = Recorder()
    with tf.Graph().as_default(), tf.variable_scope("model"):
        network(Layers(training=True, source=recorder), tf.constant(IMAGES))
    assert [(spec.name, spec.shape, spec.kind) for spec in recorder.specs] == [
        ("model/conv/kernel", (3, 3, 4, 6), KERNEL),
        ("model/batch_norm/gamma", (6,), NORM),
        ("model/batch_norm/beta", (6,), OFFSET),
        ("model/batch_norm/moving_mean", (6,), None),
        ("model/batch_norm/moving_variance", (6,), None),
        ("model/dense/kernel", (9, 3), KERNEL),
        ("model/dense/bias", (3,), BIAS),
    ]


def test_layers_outside_any_scope_have_plain_names():
    recorder = Recorder()
    with tf.Graph().as_default():
        Layers(training=True, source=recorder).dense(tf.zeros([2, 5]), 3)
    assert [spec.name for spec in recorder.specs] == ["dense/kernel", "dense/bias"]


def test_training_computes_the_same_from_slices_of_a_flat_vector():
    recorder = Recorder()
    with tf.Graph().as_default():
        network(Layers(training=True, source=recorder), tf.constant(IMAGES))
    section = Section([spec for spec in recorder.specs if spec.kind is not None])
    flat = np.random.default_rng(1).normal(size=section.size).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        packed = network(
            Layers(training=True, source=Slices(section, tf.constant(flat))), tf.constant(IMAGES)
        )
        assert tf.global_variables() == []
        separate = network(Layers(training=True), tf.constant(IMAGES))
        session.run(tf.global_variables_initializer())
        start = 0
        for variable in tf.trainable_variables():
            size = variable.shape.num_elements()
            variable.load(flat[start : start + size].reshape(variable.shape), session)
            start += size
        one, other = session.run([packed, separate])
    assert start == len(flat)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
