"""What a process's place among others makes of a step, and what it shares with them."""

from types import SimpleNamespace

import pytest
import tensorflow.compat.v1 as tf

from cifar10.step.params import Replication
from cifar10.step.sync_replicas import SharedState
from tests.cifar10.replica_threads import place
from tests.cifar10.steps import make_plan


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
    assert replication.staleness == staleness
    assert replication.batch_size(12) == batch_size
    assert replication.examples_per_step(12) == examples_per_step


def test_a_process_alone_is_the_chief_on_its_own_devices():
    alone = Replication.alone(make_plan(2, 1))
    assert alone.is_chief
    assert alone.tower_devices == ("/cpu:0", "/cpu:1")
    assert alone.variable_devices == ("/cpu:0",)
    assert (alone.num_replicas, alone.replicas_to_aggregate, alone.task_device) == (1, None, "")


# What is read of a variable whose gradients are averaged.
AVERAGED = [SimpleNamespace(shape=(2,), device="/cpu:0")]


@pytest.mark.parametrize(
    ("replication", "over", "rendezvous"),
    [
        (place(0, None, 1), False, False),
        (place(0, None), True, False),
        (place(0, 2), True, True),
    ],
    ids=["alone", "asynchronous", "synchronous"],
)
def test_replicas_share_no_more_than_they_need(replication, over, rendezvous):
    with tf.Graph().as_default():
        shared = SharedState(replication, AVERAGED)
        assert (shared.over is not None, shared.rendezvous is not None) == (over, rendezvous)
        assert len(shared.missing()) == over + rendezvous
        assert len(shared.initializers()) == over + rendezvous
        assert len(shared.chief_hooks()) == rendezvous
        assert (shared.end_all() is not None) == over
