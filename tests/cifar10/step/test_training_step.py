"""N towers, or N shards of the weights, train what one does; a step reads and pushes once."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.ops.layers import Layers
from cifar10.ops.variables import TRAINED_UNTIL
from cifar10.step import training_step
from cifar10.step.devices import DevicePlan
from cifar10.step.params import ModelParams
from cifar10.step.sync_replicas import SyncBarrier
from cifar10.step.training_step import StepReport, StepTensors
from tests.cifar10 import steps
from tests.cifar10.replica_threads import place
from tests.cifar10.steps import BATCH, make_batches, make_plan

# One step of plain momentum from rest moves a weight by -rate * gradient, so with a rate of 1 the
# difference between the weights of two runs is that between their gradients.
ONE_STEP: dict[str, Any] = {"learning_rate": 1.0, "weight_decay": 0.0, "schedule": "constant"}
ONE_BATCH = make_batches(1)[0]


def test_a_piece_of_the_weights_is_read_and_updated_once_a_step_however_many_towers():
    config = TrainConfig(train_batch_size=BATCH, model="mlp")
    with steps.training(config, make_plan(3, 2)) as run:
        ops = steps.ops_before(run.spec.train_op)
    for kind in ("ReadVariableOp", "ResourceApplyMomentum"):
        names = [op.inputs[0].op.name for op in ops if op.type == kind]
        found = sorted(name for name in names if name.startswith("packed/weights"))
        assert found == ["packed/weights_0", "packed/weights_1"]


def normalised_pixels(layers: Layers, images: Any) -> Any:
    """A small model: batch normalisation of the images themselves, and a dense layer."""
    x = layers.batch_norm(tf.cast(images, tf.float32))
    return layers.dense(layers.global_average_pool(x), 10)


def build_step(
    model: Any,
    plan: DevicePlan,
    batch: tuple[Any, Any],
    decay: float = 0.997,
    replication: Any = None,
    **settings: Any,
) -> Any:
    """The EstimatorSpec of a model of the test's own."""
    config = TrainConfig(train_batch_size=BATCH, batch_norm_decay=decay, **settings)
    params = ModelParams(config, plan, 100, 9, steps.AS_THEY_ARE, replication)
    return training_step.build(model, *batch, params)


def statistics() -> Any:
    return next(var for var in tf.global_variables() if var.op.name == "packed/statistics_0")


def test_moving_statistics_forget_their_initial_values_early():
    # Black images have mean 0 and variance 0; the decay is .997.
    plan = make_plan(2)
    with tf.Graph().as_default(), tf.Session(config=plan.session_config) as session:
        counter = tf.train.create_global_step()
        batch = (tf.zeros([BATCH, 32, 32, 3], tf.uint8), tf.zeros([BATCH], tf.int64))
        step = build_step(normalised_pixels, plan, batch)
        session.run(tf.global_variables_initializer())
        found = [session.run(statistics())]
        for at_step in (0, 1, 100_000):
            session.run(counter.assign(at_step))
            session.run(step.train_op)
            found.append(session.run(statistics()))
    # (1 + step) / (10 + step): the first update weighs 9/10, the second 9/11, late ones .003.
    variance = [1.0, 0.1, 0.1 * 2 / 11, 0.1 * 2 / 11 * 0.997]
    for row, expected in zip(found, variance):
        np.testing.assert_allclose(row, [0, 0, 0] + 3 * [expected], rtol=1e-4)


def test_loss_and_accuracy_are_means_over_the_towers():
    def constant(layers: Layers, images: Any) -> Any:
        """Sure of class 0 for bright images, undecided for black ones."""
        kernel = layers.variable("kernel", [1], tf.ones_initializer(), "kernel")
        bright = tf.cast(images[:, 0, 0, :1] > 0, tf.float32)
        return kernel * 1e3 * bright * tf.one_hot([0], 10)

    pixels = np.zeros((BATCH, 32, 32, 3), np.uint8)
    pixels[:4] = 9  # the first tower's
    plan = make_plan(3)
    with tf.Graph().as_default(), tf.Session(config=plan.session_config) as session:
        tf.train.create_global_step()
        batch = (tf.constant(pixels), tf.constant([0] * 4 + [1] * 8, tf.int64))
        step = build_step(constant, plan, batch, **ONE_STEP)
        session.run(tf.global_variables_initializer())
        (_, loss, accuracy, shown), _ = session.run([StepTensors.find().report, step.train_op])
    assert shown.tolist() == pixels[:8].tolist()
    assert loss == pytest.approx(2 / 3 * np.log(10))
    assert accuracy == pytest.approx(1 / 3)
    assert (loss.shape, accuracy.shape) == ((), ())


@pytest.mark.parametrize("name", ["packed/weights_0", "packed/statistics_0"])
def test_a_weight_or_a_statistic_that_is_nan_is_not_finite(name):
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        build_step(normalised_pixels, make_plan(1), tuple(map(tf.constant, ONE_BATCH)))
        session.run(tf.global_variables_initializer())
        are_finite = StepTensors.find().are_finite
        assert session.run(are_finite)
        variable = next(found for found in tf.global_variables() if found.op.name == name)
        values = session.run(variable)
        values[-1] = np.nan
        variable.load(values, session)
        assert not session.run(are_finite)


def test_a_step_reports_the_counters_after_it_and_the_rate_before_it():
    settings = {"learning_rate": 0.1, "schedule": "staged", "warmup_epochs": 0.0}
    config = TrainConfig(model="mlp", train_batch_size=BATCH, **settings)
    with steps.training(config, make_plan(1)) as run:
        seen = next(v for v in tf.global_variables() if v.op.name == "examples_seen")
        seen.load(82_000 - BATCH, run.session)  # 1,000 images an epoch: one step before epoch 82
        fetches = StepTensors.find().report
        reports = [StepReport.of(*run.step(batch, fetches)) for batch in make_batches(2)]
    assert [report[:4] for report in reports] == [
        (1, 82_000, pytest.approx(0.1), False),
        (2, 82_012, pytest.approx(0.01), False),
    ]


def mean_colours(layers: Layers, images: Any) -> Any:
    """The smallest of models: a dense layer of three colours."""
    return layers.dense(layers.global_average_pool(tf.cast(images, tf.float32)), 10)


def test_every_trainer_of_a_cluster_sees_its_end():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        batch = tuple(map(tf.constant, ONE_BATCH))
        step = build_step(mean_colours, make_plan(1), batch, replication=place(1, None))
        tensors = StepTensors.find()
        with tf.variable_scope("", reuse=tf.AUTO_REUSE):
            chief = SyncBarrier(place(0, None), [])
            begin, end_all = chief.begin(), chief.end_all()
        session.run([tf.global_variables_initializer(), begin])
        for is_over in (False, True):
            over, report, _ = session.run([tensors.over, tensors.report, step.train_op])
            assert over == StepReport.of(*report).over == is_over
            session.run(end_all)


def test_layers_know_when_the_weights_of_the_first_epochs_have_trained():
    known = []

    def model(layers: Layers, images: Any) -> Any:
        known.append(layers.still_trains)
        colours = layers.global_average_pool(tf.cast(images, tf.float32))
        return (
            mean_colours(layers, images)
            + layers.variable("early", [1], tf.zeros_initializer(), TRAINED_UNTIL) * colours[:, :1]
        )

    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.create_global_step()
        batch = tuple(map(tf.constant, ONE_BATCH))
        build_step(model, make_plan(1), batch)
        session.run(tf.global_variables_initializer())
        seen = next(v for v in tf.global_variables() if v.op.name == "examples_seen")
        assert known[0] is None  # where variables are only asked for
        epochs = TrainConfig().whitening_bias_epochs
        for images, early in ((100 * epochs - 1, True), (100 * epochs, False)):  # of 100 an epoch
            seen.load(images, session)
            assert session.run(known[1]) == early
