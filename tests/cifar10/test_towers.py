"""N towers do what one tower does: the same gradients, statistics and weights."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import model_fn, towers
from cifar10.config import TrainConfig
from cifar10.devices import DevicePlan
from cifar10.layers import Layers, NormStatistics

BATCH = 12


def make_plan(num_towers: int) -> DevicePlan:
    """Towers on logical CPU devices of their own, as on GPUs."""
    return DevicePlan(
        tower_devices=tuple(f"/cpu:{index}" for index in range(num_towers)),
        variable_devices=tuple(f"/cpu:{index}" for index in range(num_towers)),
        data_format="channels_last",
        compute_dtype=tf.float32,
        loss_scaling=False,
        session_config=tf.ConfigProto(device_count={"CPU": num_towers}),
        summary="",
    )


def make_batches(steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    return [
        (
            random.integers(0, 256, (BATCH, 32, 32, 3), np.uint8),
            random.integers(0, 10, BATCH, np.int64),
        )
        for _ in range(steps)
    ]


def train(config: TrainConfig, num_towers: int, steps: int) -> dict[str, np.ndarray]:
    """Trains a few steps from fixed initial values; returns every saved variable."""
    with tf.Graph().as_default():
        tf.train.create_global_step()
        images = tf.placeholder(tf.uint8, [BATCH, 32, 32, 3])
        labels = tf.placeholder(tf.int64, [BATCH])
        params = model_fn.ModelParams(config, make_plan(num_towers), 1000, 100)
        spec = model_fn.model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, params)
        variables = sorted(tf.global_variables(), key=lambda variable: variable.name)
        with tf.Session(config=params.plan.session_config) as session:
            session.run(tf.global_variables_initializer())
            random = np.random.default_rng(1)
            for variable in tf.trainable_variables():
                scale = 1.0 if "gamma" in variable.name else 0.0
                value = scale + 0.1 * random.standard_normal(variable.shape.as_list())
                variable.load(value.astype(np.float32), session)
            for batch_images, batch_labels in make_batches(steps):
                session.run(spec.train_op, {images: batch_images, labels: batch_labels})
            return {variable.name: session.run(variable) for variable in variables}


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert list(one) == list(other)
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


# One step of plain momentum from rest moves a weight by -rate * gradient, so with a rate of 1 the
# difference between the weights of two runs is that between their gradients.
ONE_STEP: dict[str, Any] = {"learning_rate": 1.0, "weight_decay": 0.0, "schedule": "constant"}


@pytest.fixture
def _smooth_activations(monkeypatch):
    """A ReLU whose input is within rounding of zero may go either way; softplus has no kink."""
    monkeypatch.setattr(tf.nn, "relu", tf.nn.softplus)


@pytest.mark.usefixtures("_smooth_activations")
@pytest.mark.parametrize(
    ("num_towers", "model"),
    [
        (3, {"model": "mlp"}),
        (3, {"model": "resnet", "num_layers": 8, "batch_norm": "sync"}),
        (2, {"model": "resnet_v2", "num_layers": 8, "batch_norm": "off"}),
    ],
    ids=["mlp", "resnet with shared statistics", "resnet_v2 without normalisation"],
)
def test_towers_give_one_towers_gradient(num_towers: int, model: dict[str, Any]):
    config = TrainConfig(train_batch_size=BATCH, **model, **ONE_STEP)
    one, several = train(config, 1, steps=1), train(config, num_towers, steps=1)
    assert largest_difference(one, several) < 1e-5


@pytest.mark.usefixtures("_smooth_activations")
def test_towers_train_the_same_weights_over_several_steps():
    config = TrainConfig(
        train_batch_size=BATCH,
        model="resnet",
        num_layers=8,
        batch_norm="sync",
        learning_rate=0.01,
    )
    one, two = train(config, 1, steps=5), train(config, 2, steps=5)
    assert largest_difference(one, two) < 1e-5
    assert one["examples_seen:0"] == 5 * BATCH


def test_variables_are_spread_over_the_devices_by_bytes():
    config = TrainConfig(train_batch_size=BATCH, num_layers=20)
    with tf.Graph().as_default():
        params = model_fn.ModelParams(config, make_plan(2), 1000, 100)
        model_fn.model_fn(tf.zeros([BATCH, 32, 32, 3], tf.uint8), None, "infer", params)
        held = dict.fromkeys(["/device:CPU:0", "/device:CPU:1"], 0)
        for variable in tf.trainable_variables():
            held[variable.device] += 4 * variable.shape.num_elements()
    assert sum(held.values()) == 4 * 269_722
    assert max(held.values()) - min(held.values()) <= 4 * 3 * 3 * 64 * 64  # the largest kernel


def test_moving_statistics_are_those_of_the_whole_batch():
    values = np.random.default_rng(2).normal(3, 2, (12, 5)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        seen = []
        for part in np.split(values, 3):
            mean, variance = tf.nn.moments(tf.constant(part), [0])
            seen.append(NormStatistics(None, None, mean, variance, tf.constant(4)))
        mean, variance = session.run(towers.combine_statistics(seen, shared=False))
    np.testing.assert_allclose(mean, values.mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance, values.var(0, ddof=1), rtol=1e-5)


def test_moving_statistics_count_every_tower():
    config = TrainConfig(train_batch_size=BATCH, num_layers=8, batch_norm_decay=0.5)
    one, three = train(config, 1, steps=1), train(config, 3, steps=1)
    # Before the first normalisation every tower sees the same function of its own images.
    for name in ("moving_mean", "moving_variance"):
        full = f"model/stem/batch_norm/{name}:0"
        np.testing.assert_allclose(one[full], three[full], rtol=1e-4, atol=1e-5)


def test_moving_statistics_forget_their_initial_values_early():
    config = TrainConfig(train_batch_size=BATCH, num_layers=8)  # decay .997
    # (1 + step) / (10 + step): the first update weighs 9/10, the second 9/11.
    with tf.Graph().as_default(), tf.Session() as session:
        moving = tf.get_variable(
            "moving", [1], initializer=tf.ones_initializer(), use_resource=True
        )
        other = tf.get_variable("other", [1], initializer=tf.ones_initializer(), use_resource=True)
        seen = NormStatistics(moving, other, tf.zeros([1]), tf.zeros([1]), tf.constant(100))
        layers = Layers(training=True, norm_decay=config.batch_norm_decay, statistics=[seen])
        tower = towers.Tower(layers, None, None)
        step = tf.placeholder(tf.int64, [])
        updates = towers.moving_statistics_updates([tower], step)
        session.run(tf.global_variables_initializer())
        session.run(updates, {step: 0})
        np.testing.assert_allclose(session.run(moving), [0.1], rtol=1e-5)
        session.run(updates, {step: 100_000})
        np.testing.assert_allclose(session.run(moving), [0.0997], rtol=1e-5)


def test_parts_of_a_batch_keep_their_order_and_differ_by_one_image_at_most():
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.placeholder(tf.int64, [None])
        parts = towers.split_batch(batch, 3)
        assert [part.tolist() for part in session.run(parts, {batch: range(7)})] == [
            [0, 1],
            [2, 3],
            [4, 5, 6],
        ]
        assert [part.tolist() for part in session.run(parts, {batch: [9]})] == [[], [], [9]]


def test_average_gradients_refuses_a_gradient_that_some_towers_lack():
    with tf.Graph().as_default():
        variable = tf.get_variable("weights", [2], use_resource=True)
        gradient = tf.ones([2])
        with pytest.raises(ValueError, match="weights:0 has no gradient on 1 of 2 towers"):
            towers.average_gradients([[gradient], [None]], [variable])


def test_average_gradients_is_the_mean():
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("weights", [2], use_resource=True)
        gradients = [[tf.constant([1.0, 2.0])], [tf.constant([3.0, 6.0])]]
        ((mean, of_variable),) = towers.average_gradients(gradients, [variable])
        assert of_variable is variable
        assert session.run(mean).tolist() == [2.0, 4.0]


def test_every_weight_is_read_once_a_step_however_many_towers():
    config = TrainConfig(train_batch_size=BATCH, num_layers=8)
    reads = {}
    for num_towers in (1, 3):
        with tf.Graph().as_default() as graph:
            params = model_fn.ModelParams(config, make_plan(num_towers), 1000, 100)
            model_fn.model_fn(tf.zeros([BATCH, 32, 32, 3], tf.uint8), None, "infer", params)
            reads[num_towers] = sum(
                op.type == "ReadVariableOp" and "kernel" in op.inputs[0].name
                for op in graph.get_operations()
                if "Initializer" not in op.name
            )
    assert reads[1] == reads[3]


def test_fp16_scales_the_loss_and_leaves_out_steps_that_overflow():
    config = TrainConfig(train_batch_size=BATCH, model="mlp", learning_rate=0.01)
    plan = dataclasses.replace(make_plan(2), compute_dtype=tf.float16, loss_scaling=True)
    with tf.Graph().as_default():
        tf.train.create_global_step()
        images = tf.placeholder(tf.uint8, [BATCH, 32, 32, 3])
        labels = tf.placeholder(tf.int64, [BATCH])
        params = model_fn.ModelParams(config, plan, 1000, 100)
        spec = model_fn.model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, params)
        scale = next(v for v in tf.global_variables() if "current_loss_scale" in v.name)
        kernel = next(v for v in tf.trainable_variables() if "kernel" in v.name)
        with tf.Session(config=plan.session_config) as session:
            session.run(tf.global_variables_initializer())
            feed = dict(zip((images, labels), make_batches(1)[0]))
            scale.load(2.0**30, session)  # above what fp16 can hold
            before = session.run(kernel)
            session.run(spec.train_op, feed)
            assert session.run(scale) == 2.0**29
            np.testing.assert_array_equal(session.run(kernel), before)
            scale.load(2.0**7, session)
            losses = [session.run([spec.loss, spec.train_op], feed)[0] for _ in range(20)]
            assert losses[-1] < losses[0]
            assert np.abs(session.run(kernel) - before).max() > 0
