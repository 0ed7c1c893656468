"""A checkpoint of packed training is one of separate variables, and the other way round."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step import model_fn
from cifar10.step.params import ModelParams
from cifar10.step.replication import Replication
from tests.cifar10 import steps
from tests.cifar10.steps import BATCH, make_batches, make_plan

RESNET: dict[str, Any] = {"num_layers": 8, "train_batch_size": BATCH}
MLP: dict[str, Any] = {"model": "mlp", "hidden_units": 7, "train_batch_size": BATCH}
SLOTS = {"momentum": ["Momentum"], "nesterov": ["Momentum"], "adam": ["Adam", "Adam_1"]}
COUNTERS: dict[str, list[int]] = {"global_step": [], "examples_seen": []}


def evaluation_graph(config: TrainConfig) -> list[Any]:
    """Builds an EVAL graph in the graph at hand; returns its variables."""
    params = ModelParams(config, make_plan(1))
    images, labels = tf.zeros([2, 32, 32, 3], tf.uint8), tf.zeros([2], tf.int64)
    model_fn.model_fn(images, labels, tf.estimator.ModeKeys.EVAL, params)
    return list(tf.global_variables())


def evaluated(config: TrainConfig, path: str) -> dict[str, np.ndarray]:
    """The variables of an EVAL graph that was filled from a checkpoint."""
    with tf.Graph().as_default(), tf.Session() as session:
        variables = evaluation_graph(config)
        tf.train.Saver().restore(session, path)
        return {one.op.name: session.run(one) for one in variables}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert sorted(one) == sorted(other)
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize(
    ("settings", "num_pieces"),
    [
        (RESNET, 3),
        ({**RESNET, "model": "resnet_v2", "optimizer": "adam"}, 3),
        ({**MLP, "optimizer": "nesterov"}, 1),
    ],
    ids=["resnet", "resnet_v2 with adam", "mlp"],
)
def test_a_checkpoint_holds_the_layers_names_and_shapes_and_nothing_of_the_packing(
    settings, num_pieces
):
    config = TrainConfig(**settings)
    with tf.Graph().as_default():
        variables = evaluation_graph(config)
        expected = {one.op.name: one.shape.as_list() for one in variables}
        expected |= {
            f"{one.op.name}/{slot}": one.shape.as_list()
            for one in tf.trainable_variables()
            for slot in SLOTS[config.optimizer]
        }
    powers = {"beta1_power": [], "beta2_power": []} if config.optimizer == "adam" else {}
    with steps.training(config, make_plan(1, num_pieces)) as run:
        saved = run.saved()
    found = {name: list(value.shape) for name, value in saved.items()}
    assert found == {**expected, **powers, **COUNTERS}
    assert {value.dtype for name, value in saved.items() if name not in COUNTERS} == {
        np.dtype(np.float32)
    }


def test_a_resnets_checkpoint_has_the_names_that_users_know():
    with steps.training(TrainConfig(**RESNET), make_plan(1)) as run:
        saved = run.saved()
    assert [name for name in saved if "stem" in name or "dense" in name or "/" not in name] == [
        "examples_seen",
        "global_step",
        "model/head/dense/bias",
        "model/head/dense/bias/Momentum",
        "model/head/dense/kernel",
        "model/head/dense/kernel/Momentum",
        "model/stem/batch_norm/beta",
        "model/stem/batch_norm/beta/Momentum",
        "model/stem/batch_norm/gamma",
        "model/stem/batch_norm/gamma/Momentum",
        "model/stem/batch_norm/moving_mean",
        "model/stem/batch_norm/moving_variance",
        "model/stem/conv/kernel",
        "model/stem/conv/kernel/Momentum",
    ]
    assert saved["model/stem/conv/kernel"].shape == (3, 3, 3, 16)


def test_the_flat_vector_is_the_kernels_in_order_then_the_other_weights():
    with steps.training(TrainConfig(**MLP), make_plan(1, 3)) as run:
        run.shake()
        flat, saved = run.weights, run.saved()
    names = ["dense/kernel", "dense_1/kernel", "dense/bias", "dense_1/bias"]
    np.testing.assert_array_equal(
        flat, np.concatenate([saved[f"model/{name}"].ravel() for name in names])
    )


def test_evaluation_reads_what_packed_training_saved_bit_for_bit(tmp_path):
    config = TrainConfig(**RESNET)
    with steps.training(config, make_plan(1, 2)) as run:
        run.shake()
        for batch in make_batches(2):
            run.step(batch)
        path = run.save(tmp_path)
    read = evaluated(config, path)
    written = steps.read_checkpoint(path)
    assert len(read) == 2 + 7 + 2 + 4 * 7
    for name, value in read.items():
        np.testing.assert_array_equal(value, written[name], err_msg=name)


def test_saved_moving_statistics_are_each_layers_own(tmp_path):
    # Moving statistics that remember one batch alone: evaluated on it, the loss is training's.
    config = TrainConfig(**RESNET, batch_norm_decay=0.0, learning_rate=1e-30)
    ((images, labels),) = make_batches(1)
    with steps.training(config, make_plan(1)) as run:
        run.shake()
        run.step((images, labels))
        path = run.save(tmp_path)
        (loss,) = run.step((images, labels), [run.spec.loss])
    with tf.Graph().as_default(), tf.Session() as session:
        params = ModelParams(config, make_plan(1))
        batch = (tf.constant(images), tf.constant(labels))
        spec = model_fn.model_fn(*batch, tf.estimator.ModeKeys.EVAL, params)
        tf.train.Saver().restore(session, path)
        # Sample variances instead of population variances: 1 in 768 apart at most.
        assert session.run(spec.loss) == pytest.approx(loss, rel=0.005)


@pytest.mark.parametrize(("first", "second", "optimizer"), [(3, 1, "momentum"), (2, 3, "adam")])
def test_another_number_of_pieces_reads_it_bit_for_bit(tmp_path, first, second, optimizer):
    config = TrainConfig(**MLP, optimizer=optimizer)
    with steps.training(config, make_plan(1, first)) as run:
        run.shake()
        for batch in make_batches(2):
            run.step(batch)
        path, flat = run.save(tmp_path), run.weights
        written = steps.read_checkpoint(path)
    with steps.training(config, make_plan(1, second), seed=2) as run:
        run.spec.scaffold.saver.restore(run.session, path)
        np.testing.assert_array_equal(run.weights, flat)
        assert_same(run.saved(), written)
    assert any(np.abs(written[f"model/dense/kernel/{slot}"]).max() for slot in SLOTS[optimizer])


def test_a_run_that_continues_in_other_pieces_ends_as_one_that_was_not_stopped(tmp_path):
    config = TrainConfig(**MLP, optimizer="adam", learning_rate=0.01)
    batches = make_batches(4)
    whole = steps.train(config, make_plan(1, 1), batches)
    with steps.training(config, make_plan(1, 2)) as run:
        run.shake()
        for batch in batches[:2]:
            run.step(batch)
        path = run.save(tmp_path)
    with steps.training(config, make_plan(1, 3)) as run:
        run.spec.scaffold.saver.restore(run.session, path)
        for batch in batches[2:]:
            run.step(batch)
        assert steps.largest_difference(run.saved(), whole) < 1e-6


def test_packed_training_reads_a_checkpoint_of_separate_variables(tmp_path):
    # As the original tutorial's way of saving would write it: a variable a name.
    config = TrainConfig(**MLP)
    with steps.training(config, make_plan(1)) as run:
        names = {name: value.shape for name, value in run.saved().items()}
    random = np.random.default_rng(4)
    values = {
        name: random.integers(0, 9, shape) if name in COUNTERS else random.normal(size=shape)
        for name, shape in names.items()
    }
    with tf.Graph().as_default(), tf.Session() as session:
        for name, value in values.items():
            dtype = np.int64 if name in COUNTERS else np.float32
            tf.get_variable(name, initializer=np.asarray(value, dtype))
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver().save(session, str(tmp_path / "separate"))
    with steps.training(config, make_plan(1, 2)) as run:
        run.spec.scaffold.saver.restore(run.session, path)
        assert_same(run.saved(), steps.read_checkpoint(path))


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_slots_keep_the_layers_names_with_a_loss_scale_too(optimizer):
    config = TrainConfig(**MLP, optimizer=optimizer)
    plan = dataclasses.replace(make_plan(1, 2), loss_scaling=True)
    with steps.training(config, plan) as run:
        saved = run.saved()
    assert [name for name in saved if name.startswith("packed/")] == []
    for slot in SLOTS[optimizer]:
        assert saved[f"model/dense/kernel/{slot}"].shape == (3072, 7)
    assert {"current_loss_scale", "good_steps"} <= set(saved)


def test_only_the_chiefs_machine_writes_and_reads_the_files():
    place = Replication(
        ("/job:ps/task:0/cpu:0", "/job:ps/task:1/cpu:0"),
        ("/job:master/task:0/cpu:0",),
        "/job:master/task:0",
    )
    config = TrainConfig(**RESNET)
    with tf.Graph().as_default() as graph, tf.device("/job:master/task:0"):
        tf.train.create_global_step()
        batch = (tf.zeros([BATCH, 32, 32, 3], tf.uint8), tf.zeros([BATCH], tf.int64))
        params = ModelParams(config, make_plan(1), 1000, 100, replication=place)
        model_fn.model_fn(*batch, tf.estimator.ModeKeys.TRAIN, params)
        files = [op for op in graph.get_operations() if op.type in ("SaveV2", "RestoreV2")]
        homes = {one.op.name: one.device for one in tf.trainable_variables()}
    assert {op.type for op in files} == {"SaveV2", "RestoreV2"}
    assert {tf.DeviceSpec.from_string(op.device).job for op in files} == {"master"}
    assert homes == {
        "packed/weights_0": "/job:ps/task:0/device:CPU:0",
        "packed/weights_1": "/job:ps/task:1/device:CPU:0",
    }


def test_as_many_checkpoints_are_kept_as_asked_for_under_relative_names(tmp_path):
    with steps.training(TrainConfig(**MLP, keep_checkpoints=2), make_plan(1)) as run:
        saver = run.spec.scaffold.saver
        for step in (1, 2, 3):
            saver.save(run.session, str(tmp_path / "model.ckpt"), step)
    kept = sorted(path.name for path in tmp_path.glob("*.index"))
    assert kept == ["model.ckpt-2.index", "model.ckpt-3.index"]
    moved = tmp_path.rename(pathlib.Path(f"{tmp_path}-moved"))
    assert tf.train.latest_checkpoint(str(moved)) == str(moved / "model.ckpt-3")
