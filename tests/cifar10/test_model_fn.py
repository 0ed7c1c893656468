"""The model_fn in its three modes."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import model_fn
from cifar10.config import TrainConfig
from tests.cifar10.test_towers import make_plan

PARAMS = model_fn.ModelParams(TrainConfig(model="mlp"), make_plan(2), 1000, 100)
IMAGES = np.random.default_rng(0).integers(0, 256, (7, 32, 32, 3), np.uint8)
LABELS = np.arange(7, dtype=np.int64)


def build(mode: str, params: model_fn.ModelParams = PARAMS, count: int = 4) -> Any:
    labels = None if mode == "infer" else tf.constant(LABELS[:count])
    return model_fn.model_fn(tf.constant(IMAGES[:count]), labels, mode, params)


@pytest.mark.parametrize("mode", ["eval", "infer"])
def test_there_is_no_optimizer_outside_training(mode):
    with tf.Graph().as_default():
        spec = build(mode)
        assert spec.train_op is None
        assert not [v.name for v in tf.global_variables() if "Momentum" in v.name]
        assert not [op for op in tf.get_default_graph().get_operations() if "grad" in op.name]


def test_training_has_momentum_for_every_weight():
    with tf.Graph().as_default():
        tf.train.create_global_step()
        build("train")
        slots = {v.name for v in tf.global_variables() if v.name.endswith("/Momentum:0")}
        assert slots == {v.name[:-2] + "/Momentum:0" for v in tf.trainable_variables()}


def test_prediction_gives_classes_and_probabilities_of_ten_classes():
    with tf.Graph().as_default(), tf.Session(config=PARAMS.plan.session_config) as session:
        spec = build("infer", count=5)
        session.run(tf.global_variables_initializer())
        found = session.run(spec.predictions)
    assert found["probabilities"].shape == (5, 10)
    np.testing.assert_allclose(found["probabilities"].sum(1), np.ones(5), rtol=1e-5)
    assert found["classes"].tolist() == found["probabilities"].argmax(1).tolist()


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_evaluation_is_exact_for_any_batch_size(batch_size):
    with tf.Graph().as_default(), tf.Session(config=PARAMS.plan.session_config) as session:
        tf.set_random_seed(1)
        images, labels = (
            tf.placeholder(tf.uint8, [None, 32, 32, 3]),
            tf.placeholder(tf.int64, [None]),
        )
        spec = model_fn.model_fn(images, labels, "eval", PARAMS)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        updates = [update for _, update in spec.eval_metric_ops.values()]
        for start in range(0, 7, batch_size):
            part = slice(start, start + batch_size)
            session.run(updates, {images: IMAGES[part], labels: LABELS[part]})
        metrics = session.run({name: value for name, (value, _) in spec.eval_metric_ops.items()})
        probabilities = session.run(f"{model_fn.PROBABILITIES}:0", {images: IMAGES, labels: LABELS})
    predicted = probabilities.argmax(1)
    assert metrics["accuracy"] == pytest.approx((predicted == LABELS).mean())
    loss = -np.log(probabilities[np.arange(7), LABELS]).mean()
    assert metrics["cross_entropy"] == pytest.approx(loss, rel=1e-4)
    expected = np.zeros((10, 10), int)
    np.add.at(expected, (LABELS, predicted), 1)
    np.testing.assert_array_equal(metrics["confusion_matrix"], expected)


def test_a_batch_smaller_than_the_towers_is_predicted_like_any_other():
    config = TrainConfig(num_layers=8)
    params = dataclasses.replace(PARAMS, config=config, plan=make_plan(3))
    with tf.Graph().as_default(), tf.Session(config=params.plan.session_config) as session:
        images = tf.placeholder(tf.uint8, [None, 32, 32, 3])
        predictions = model_fn.model_fn(images, None, "infer", params).predictions
        session.run(tf.global_variables_initializer())
        together = session.run(predictions["probabilities"], {images: IMAGES})
        alone = [session.run(predictions["probabilities"], {images: IMAGES[:n]}) for n in (1, 2)]
    assert [part.shape for part in alone] == [(1, 10), (2, 10)]
    for part in alone:
        np.testing.assert_allclose(part, together[: len(part)], rtol=1e-4)


def test_images_are_standardised_by_the_channels_of_the_training_split():
    params = dataclasses.replace(
        PARAMS, channel_mean=(10.0, 20.0, 30.0), channel_deviation=(1.0, 2.0, 4.0)
    )
    with tf.Graph().as_default(), tf.Session() as session:
        pixels = tf.constant(np.full((1, 1, 1, 3), 40, np.uint8))
        result = model_fn.standardise(pixels, params)
        session.run(tf.global_variables_initializer())
        assert session.run(result).tolist() == [[[[30.0, 10.0, 2.5]]]]


def test_the_learning_rate_follows_the_examples_seen_not_the_steps():
    params = dataclasses.replace(
        PARAMS, config=TrainConfig(model="mlp", train_batch_size=4, weight_decay=0.0)
    )
    with tf.Graph().as_default(), tf.Session(config=PARAMS.plan.session_config) as session:
        tf.train.create_global_step()
        spec = build("train", params)
        seen = next(v for v in tf.global_variables() if v.name == "examples_seen:0")
        session.run(tf.global_variables_initializer())
        seen.load(82_000 - 4, session)  # 1,000 images an epoch: one step before epoch 82
        fetches = [f"{name}:0" for name in (model_fn.LEARNING_RATE, model_fn.SEEN_AFTER)]
        rates = [session.run([spec.train_op, *fetches])[1:] for _ in range(2)]
    assert rates == [[pytest.approx(0.1), 82_000], [pytest.approx(0.01), 82_004]]
