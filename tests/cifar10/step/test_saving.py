"""A checkpoint of packed training is one of separate variables, and the other way round."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step import model_fn
from cifar10.step.params import ModelParams, Replication
from tests.cifar10 import steps
from tests.cifar10.steps import BATCH, make_batches, make_plan

RESNET: dict[str, Any] = {"num_layers": 8, "train_batch_size": BATCH}
MLP: dict[str, Any] = {"model": "mlp", "hidden_units": 7, "train_batch_size": BATCH}
SLOTS = {"momentum": ["Momentum"], "adam": ["Adam", "Adam_1"]}
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
        return {variable.op.name: session.run(variable) for variable in variables}


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a ResNet's checkpoint after two steps in three shards."""
    with steps.training(TrainConfig(**RESNET), make_plan(1, 3)) as run:
        run.shake()
        for batch in make_batches(2):
            run.step(batch)
        return run.save(tmp_path_factory.mktemp("resnet"))


@pytest.mark.parametrize(
    "settings", [RESNET, {**MLP, "optimizer": "adam"}], ids=["resnet", "mlp with adam"]
)
def test_a_checkpoint_holds_the_layers_names_and_shapes_and_nothing_of_the_packing(
    resnet, settings
):
    config = TrainConfig(**settings)
    with tf.Graph().as_default():
        variables = evaluation_graph(config)
        expected = {variable.op.name: variable.shape.as_list() for variable in variables}
        expected |= {
            f"{variable.op.name}/{slot}": variable.shape.as_list()
            for variable in tf.trainable_variables()
            for slot in SLOTS[config.optimizer]
        }
    powers = {"beta1_power": [], "beta2_power": []} if config.optimizer == "adam" else {}
    if settings is RESNET:
        saved = steps.read_checkpoint(resnet)
    else:
        with steps.training(config, make_plan(1)) as run:
            saved = run.saved()
    found = {name: list(value.shape) for name, value in saved.items()}
    assert found == {**expected, **powers, **COUNTERS}
    assert {value.dtype for name, value in saved.items() if name not in COUNTERS} == {
        np.dtype(np.float32)
    }


def test_evaluation_reads_what_packed_training_saved_bit_for_bit(resnet):
    read = evaluated(TrainConfig(**RESNET), resnet)
    written = steps.read_checkpoint(resnet)
    assert len(read) == 2 + 7 + 2 + 4 * 7
    np.testing.assert_equal(read, {name: written[name] for name in read})


def test_another_number_of_pieces_reads_it_bit_for_bit(tmp_path):
    config = TrainConfig(**MLP, optimizer="adam")
    with steps.training(config, make_plan(1, 2)) as run:
        run.shake()
        for batch in make_batches(2):
            run.step(batch)
        path, flat = run.save(tmp_path), run.weights
        written = steps.read_checkpoint(path)
    with steps.training(config, make_plan(1, 3), seed=2) as run:
        run.spec.scaffold.saver.restore(run.session, path)
        np.testing.assert_array_equal(run.weights, flat)
        again = run.saved()
    np.testing.assert_equal(again, written)
    assert any(np.abs(written[f"model/dense/kernel/{slot}"]).max() for slot in SLOTS["adam"])


def test_only_the_chiefs_machine_writes_and_reads_the_files():
    place = Replication(
        ("/job:ps/task:0/cpu:0", "/job:ps/task:1/cpu:0"),
        ("/job:master/task:0/cpu:0",),
        "/job:master/task:0",
    )
    with tf.Graph().as_default() as graph, tf.device("/job:master/task:0"):
        steps.build(TrainConfig(**RESNET), make_plan(1), place)
        files = [op for op in graph.get_operations() if op.type in ("SaveV2", "RestoreV2")]
        homes = {shard.op.name: shard.device for shard in tf.trainable_variables()}
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
