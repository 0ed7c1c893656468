"""From gradients to new weights, against softmax regression in numpy."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.ops.layers import Layers
from cifar10.step import gradients, training_step
from cifar10.step.devices import DevicePlan
from cifar10.step.params import ModelParams, Replication
from cifar10.step.training_step import StepReport, StepTensors
from tests.cifar10 import steps
from tests.cifar10.steps import make_plan

BATCH, RATE, DECAY = 12, 0.5, 0.25
SETTINGS: dict[str, Any] = {
    "train_batch_size": BATCH,
    "optimizer": "momentum",
    "momentum": 0.0,
    "learning_rate": RATE,
    "schedule": "constant",
    "warmup_epochs": 0.0,
    "weight_decay": DECAY,
}
RANDOM = np.random.default_rng(3)
PIXELS = RANDOM.integers(0, 3, (BATCH, 32, 32, 3), np.uint8)
LABELS = RANDOM.integers(0, 10, BATCH, np.int64)
# Three numbers an image and ten classes: a kernel [3, 10] and a bias [10].
WEIGHTS = RANDOM.normal(size=40).astype(np.float32)
KERNEL = np.arange(40) < 30


def regression(layers: Layers, images: Any) -> Any:
    """Logits of one pixel of each image."""
    return layers.dense(tf.cast(images[:, 0, 0], tf.float32), 10)


def numpys_gradient(weights: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy over the batch."""
    inputs = PIXELS[:, 0, 0].astype(np.float64)
    logits = inputs @ weights[KERNEL].reshape(3, 10) + weights[~KERNEL]
    errors = np.exp(logits) / np.exp(logits).sum(1, keepdims=True) - np.eye(10)[LABELS]
    return np.concatenate([(inputs.T @ errors).ravel(), errors.sum(0)]) / BATCH


def numpys_step(weights: np.ndarray) -> np.ndarray:
    """Plain descent; the kernel decays, the bias does not."""
    return weights - RATE * (numpys_gradient(weights) + DECAY * weights * KERNEL)


class Step:
    """A training step of the regression and its session."""

    def __init__(self, session: Any, config: TrainConfig, plan: DevicePlan, place: Any = None):
        self.session = session
        tf.train.create_global_step()
        params = ModelParams(config, plan, 1000, 9, steps.AS_THEY_ARE, place)
        built = training_step.build(regression, tf.constant(PIXELS), tf.constant(LABELS), params)
        self._train_op = built.train_op
        session.run(tf.global_variables_initializer())
        self.shards = tf.trainable_variables()
        values = WEIGHTS
        for shard in self.shards:
            shard.load(values[: shard.shape[0]], session)
            values = values[shard.shape[0] :]

    def take(self) -> tuple[Any, ...]:
        """Takes the step; returns its report without loss and accuracy."""
        report, _ = self.session.run([StepTensors.find().report, self._train_op])
        return StepReport.of(*report)[:4]

    @property
    def weights(self) -> np.ndarray:
        return np.concatenate(self.session.run(self.shards)).astype(np.float64)

    def load(self, name: str, value: Any) -> None:
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        variables[name].load(value, self.session)


@pytest.fixture
def session() -> Any:
    """A session of four devices, in a graph of its own."""
    config = tf.ConfigProto(device_count={"CPU": 4})
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        yield session


@pytest.mark.parametrize(
    ("towers", "shards", "machines"),
    [(1, 1, 1), (3, 1, 1), (1, 3, 1), (2, 1, 2), (3, 2, 3)],
    ids=["plain", "towers", "shards", "machines", "shards and machines"],
)
def test_an_update_is_the_mean_gradient_of_all_towers_and_decays_once(
    session, monkeypatch, towers, shards, machines
):
    if machines > 1:  # Each device stands for a machine.
        monkeypatch.setattr(gradients, "machine_of", lambda device: device)
    step = Step(session, TrainConfig(**SETTINGS), make_plan(towers, shards))
    assert len(step.shards) == shards
    step.take()
    step.take()
    expected = numpys_step(numpys_step(WEIGHTS))
    np.testing.assert_allclose(step.weights, expected, rtol=1e-5, atol=1e-6)


def test_machines_that_one_process_drives_count_their_images_and_set_the_rate(session):
    plan = make_plan(2, 1)
    replication = Replication(plan.variable_devices, plan.tower_devices, num_machines=2)
    config = TrainConfig(**SETTINGS, learning_rate_batch=4 * BATCH)
    step = Step(session, config, plan, replication)
    assert step.take() == (1, 2 * BATCH, RATE / 2, False)


def test_gradients_cross_in_the_type_that_was_asked_for(session):
    plan = make_plan(1)
    config = TrainConfig(**{**SETTINGS, "weight_decay": 0.0})
    alone = Replication.of(config, None, plan)
    replication = dataclasses.replace(alone, transfer_dtype=tf.bfloat16)
    step = Step(session, config, plan, replication)
    zeros = np.zeros(40, np.float32)  # which bfloat16 knows
    step.load("packed/weights_0", zeros)
    step.take()
    gradient = numpys_gradient(zeros)
    rounded = gradient.astype(tf.bfloat16.as_numpy_dtype).astype(np.float64)
    assert np.abs(rounded - gradient).max() > 1e-4
    np.testing.assert_allclose(step.weights, -RATE * rounded, rtol=1e-6, atol=1e-9)


# Adam's decay is apart from its gradient, momentum's goes by its size.
@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam", "momentum": 0.9}], ids=str)
def test_a_step_whose_gradients_overflow_counts_its_images_but_is_none(session, settings):
    config = TrainConfig(**{**SETTINGS, **settings}, precision="fp16")
    step = Step(session, config, make_plan(2))
    scale = next(scale for scale in tf.global_variables() if "current_loss_scale" in scale.name)
    scale.load(np.inf, session)
    assert step.take() == (0, BATCH, RATE, False)
    np.testing.assert_array_equal(step.weights, WEIGHTS)
    scale.load(8.0, session)
    assert step.take() == (1, 2 * BATCH, RATE, False)
    gradient = numpys_gradient(WEIGHTS)
    expected = numpys_step(WEIGHTS)
    if settings:  # Adam's first step is one rate long, whatever the gradient.
        expected = WEIGHTS - RATE * (np.sign(gradient) + DECAY * WEIGHTS * KERNEL)
    moving = np.abs(gradient) > 1e-3
    np.testing.assert_allclose(step.weights[moving], expected[moving], rtol=1e-4, atol=1e-4)


def test_a_step_that_is_none_pulls_nothing_to_an_average(session):
    config = TrainConfig(**SETTINGS, lookahead_steps=1, precision="fp16")
    step = Step(session, config, make_plan(1))
    scale = next(scale for scale in tf.global_variables() if "current_loss_scale" in scale.name)
    scale.load(np.inf, session)
    step.load("packed/weights_0/Lookahead", -WEIGHTS)
    step.load("global_step", 5)  # of 9, so that an average would count
    step.take()
    np.testing.assert_array_equal(step.weights, WEIGHTS)
