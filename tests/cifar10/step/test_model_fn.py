"""The model_fn in its three modes."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input import augment
from cifar10.ops.variables import BIAS, KERNEL, MEAN, NON_TRAINABLE
from cifar10.step import model_fn, towers
from cifar10.step.params import ModelParams
from tests.cifar10.steps import make_plan

PARAMS = ModelParams(TrainConfig(model="mlp", hidden_units=8), make_plan(2), 1000, 100)
IMAGES = np.random.default_rng(0).integers(0, 256, (7, 32, 32, 3), np.uint8)
LABELS = np.arange(7, dtype=np.int64)


def build(mode: str, params: ModelParams = PARAMS, count: int = 4) -> Any:
    labels = None if mode == "infer" else tf.constant(LABELS[:count])
    return model_fn.model_fn(tf.constant(IMAGES[:count]), labels, mode, params)


def test_outside_training_variables_are_on_the_first_device_and_towers_on_their_own():
    params = dataclasses.replace(PARAMS, config=TrainConfig(num_layers=8))
    with tf.Graph().as_default() as graph:
        build("infer", params)
        variables = tf.trainable_variables()
        towers = [op.device for op in graph.get_operations() if op.type == "Conv2D"]
    assert {variable.device for variable in variables} == {"/device:CPU:0"}
    assert sum(variable.shape.num_elements() for variable in variables) == 75_290
    assert towers == ["/device:CPU:0"] * 7 + ["/device:CPU:1"] * 7


def test_outside_training_a_weight_is_read_once_however_many_towers():
    params = dataclasses.replace(PARAMS, plan=make_plan(3))
    with tf.Graph().as_default() as graph:
        build("eval", params)
        variables = [
            op.inputs[0].op.name for op in graph.get_operations() if op.type == "ReadVariableOp"
        ]
    reads = [name for name in variables if name.startswith("model/")]
    # Two kernels and two biases; tf.get_variable reads each once more.
    assert len(reads) == 2 * len(set(reads)) == 2 * 4


def test_parameters_are_counted_by_their_kind_whatever_their_names(monkeypatch):
    def network(layers: Any, images: Any) -> Any:
        first = tf.zeros_initializer()
        layers.variable("kernel", [5, 7], first, NON_TRAINABLE)
        layers.variable("centre", [11], first, MEAN)
        offset = layers.variable("offset", [10], first, BIAS)
        return layers.flatten(images) @ layers.variable("table", [3072, 10], first, KERNEL) + offset

    monkeypatch.setattr(model_fn.models, "network", lambda config: network)
    assert model_fn.count_parameters(TrainConfig(), 10) == 30_720 + 10


@pytest.mark.parametrize("batch_size", [1, 3])
def test_evaluation_is_exact_for_any_batch_size(batch_size):
    ((metrics, probabilities),) = evaluated([(IMAGES, LABELS)], False, batch_size)
    predicted = probabilities.argmax(1)
    assert metrics["accuracy"] == pytest.approx((predicted == LABELS).mean())
    loss = -np.log(probabilities[np.arange(7), LABELS]).mean()
    assert metrics["cross_entropy"] == pytest.approx(loss, rel=1e-4)


def test_images_are_normalized_by_the_channels_of_the_training_split():
    with tf.Graph().as_default(), tf.Session() as session:
        of_channels = (10.0, 20.0, 30.0), (1.0, 2.0, 4.0)
        normalized = towers.normalizer(of_channels, "/cpu:0")(tf.constant(IMAGES))
        session.run(tf.global_variables_initializer())
        found = session.run(normalized)
    expected = [(IMAGES[..., 0] - 10.0), (IMAGES[..., 1] - 20.0) / 2, (IMAGES[..., 2] - 30.0) / 4]
    np.testing.assert_array_equal(found, np.stack(expected, axis=-1))


def test_training_normalizes_by_the_channels_that_the_checkpoint_holds():
    # As a run that continues on other records.
    with tf.Graph().as_default(), tf.Session(config=PARAMS.plan.session_config) as session:
        tf.train.create_global_step()
        loss = build("train").loss
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        session.run(tf.global_variables_initializer())
        before = session.run(loss)
        variables["input/channel_mean"].load([0.0, 0.0, 0.0], session)
        variables["input/channel_deviation"].load([1.0, 1.0, 1.0], session)
        assert abs(session.run(loss) - before) > 0.01


def evaluated(splits: list[tuple[Any, Any]], augments: bool, batch_size: int = 100) -> list[Any]:
    """The metrics, and the probabilities, of evaluations of splits by drawn weights."""
    params = dataclasses.replace(PARAMS, augments_test=augments)
    with tf.Graph().as_default(), tf.Session(config=PARAMS.plan.session_config) as session:
        images = tf.placeholder(tf.uint8, [None, 32, 32, 3])
        labels = tf.placeholder(tf.int64, [None])
        spec = model_fn.model_fn(images, labels, "eval", params)
        session.run(tf.global_variables_initializer())
        for index, variable in enumerate(tf.trainable_variables()):
            values = np.random.default_rng(index).normal(0, 0.05, variable.shape)
            variable.load(values.astype("f"), session)
        metrics, updates = zip(*spec.eval_metric_ops.values())
        found = []
        for of_images, of_labels in splits:
            session.run(tf.local_variables_initializer())
            for start in range(0, len(of_labels), batch_size):
                part = slice(start, start + batch_size)
                session.run(updates, {images: of_images[part], labels: of_labels[part]})
            named = dict(zip(spec.eval_metric_ops, metrics))
            probabilities = tf.get_collection(model_fn.EVALUATED)[-1]
            feed = {images: of_images, labels: of_labels}
            found.append(session.run([named, probabilities], feed))
        return found


def test_augmented_evaluation_gives_the_plain_figures_too():
    ((plain, probabilities),), ((both, same),) = (
        evaluated([(IMAGES, LABELS)], augments) for augments in (False, True)
    )
    np.testing.assert_allclose(same, probabilities, rtol=1e-5)
    assert "augmented_accuracy" not in plain
    assert 0 <= both.pop("augmented_accuracy") <= 1
    for name, value in plain.items():
        np.testing.assert_allclose(both[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("uncertain", [0, 11, 42])
def test_augmentation_averages_the_views_of_uncertain_images_in_any_batch(monkeypatch, uncertain):
    images = np.random.default_rng(1).integers(0, 256, (42, 32, 32, 3), np.uint8)
    padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    shifted = [padded[:, start : start + 32, start : start + 32] for start in (1, 0, 2)]
    views = [view for images in shifted for view in (images, images[:, :, ::-1])]
    found = evaluated([(view, np.zeros(42, np.int64)) for view in views], augments=False)
    logits = [np.log(probabilities) for _, probabilities in found]  # but for a constant of each
    answers = [logits[index] + logits[index + 1] for index in (0, 2, 4)]
    of_views = (2 * answers[0] + answers[1] + answers[2]).argmax(axis=1)
    alone = logits[0]
    best = np.sort(alone, axis=1)
    margins = best[:, -1] - best[:, -2]
    least = np.sort([*margins, 0, 99])[uncertain : uncertain + 2].mean()
    monkeypatch.setattr(augment, "_UNCERTAIN", least)
    expected = np.where(margins < least, of_views, alone.argmax(axis=1))
    assert ((expected != alone.argmax(axis=1)).any()) == bool(uncertain)
    for size in (100, 5):
        ((metrics, _),) = evaluated([(images, expected)], augments=True, batch_size=size)
        assert metrics["augmented_accuracy"] == 1
