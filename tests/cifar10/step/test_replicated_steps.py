"""The order of things in a synchronous replica's step; that it trains right: tests/reference."""

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step.params import ModelParams, Replication
from tests.cifar10 import steps
from tests.cifar10.replica_threads import place
from tests.cifar10.steps import make_plan

PUSH = "ResourceAccumulatorApplyGradient"


def step_ops(replica: int) -> list[Any]:
    """The ops of a step of the chief, 0, or of a worker, 1."""
    config = TrainConfig(num_layers=8, train_batch_size=2)
    with tf.Graph().as_default():
        return steps.ops_before(steps.build(config, make_plan(1), place(replica))[0].train_op)


@pytest.fixture(scope="module")
def chief() -> list[Any]:
    return step_ops(0)


@pytest.fixture(scope="module")
def worker() -> list[Any]:
    return step_ops(1)


def reads(op: Any, variable: str) -> bool:
    return op.type == "ReadVariableOp" and op.inputs[0].op.name == variable


def test_a_worker_pushes_one_gradient_and_leaves_the_update_to_the_chief(chief, worker):
    types = [[op.type for op in ops] for ops in (chief, worker)]
    assert [found.count("ResourceApplyMomentum") for found in types] == [1, 0]
    # Of the weights and of the statistics; the chief wakes the worker, too.
    assert [found.count(PUSH) for found in types] == [2 + 1, 2]


def test_nothing_changes_before_the_last_gradient_of_a_round_has_arrived(chief):
    arrived = {op for op in chief if op.type == "ResourceAccumulatorTakeGradient"}
    changes = [op for op in chief if op.type in ("ResourceApplyMomentum", "AssignSubVariableOp")]
    assert len(arrived) == len(changes) == 2  # of the weights and of the statistics
    for change in changes:
        assert arrived <= set(steps.ops_before(change))


@pytest.mark.parametrize("who", ["chief", "worker"])
def test_the_round_is_read_before_the_weights(request, who):
    # So that no gradient claims a later round than its weights are of.
    ops = request.getfixturevalue(who)
    (read,) = (op for op in ops if reads(op, "packed/weights_0"))
    (round_read,) = (op for op in steps.ops_before(read) if reads(op, "round"))
    # A push takes the accumulator, the round and the gradient; to token others names no round.
    rounds = {op.inputs[1].op for op in ops if op.type == PUSH}
    assert {op.inputs[0].op for op in rounds if op.type == "Identity"} == {round_read}


@pytest.mark.parametrize(
    ("settings", "batch_size", "examples_per_step", "staleness"),
    [
        ({}, 12, 12, 0),
        ({"num_machines": 3}, 36, 36, 0),
        ({"num_replicas": 3}, 12, 12, 2),
        ({"num_replicas": 3, "replicas_to_aggregate": 3}, 12, 36, 0),
        ({"num_replicas": 3, "replicas_to_aggregate": 2}, 12, 24, 0),
    ],
    ids=["alone", "in-graph", "asynchronous", "synchronous", "with a backup"],
)
def test_a_step_stands_for_the_images_that_its_update_has_seen(
    settings, batch_size, examples_per_step, staleness
):
    replication = Replication(("/cpu:0",), ("/cpu:0",), **settings)
    params = ModelParams(TrainConfig(train_batch_size=12), make_plan(1), replication=replication)
    assert replication.staleness == staleness
    assert (params.batch_size, params.examples_per_step) == (batch_size, examples_per_step)
