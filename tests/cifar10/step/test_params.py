"""Where a trainer of a cluster has its weights and towers, and what its updates wait for."""

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.step.params import Replication
from tests.cifar10.steps import make_plan

CPU = "device:CPU:0"
JOBS = {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1", "e:1")}


def place_of(job: str, index: int = 0, towers: int = 1, **settings: Any) -> Replication:
    cluster = Cluster(JOBS, job, index, has_evaluator=False, source="TF_CONFIG")
    config = TrainConfig(train_batch_size=12, **settings)
    return Replication.of(config, cluster, make_plan(towers, 1))


def test_asynchronous_trainers_share_the_parameter_servers():
    assert dataclasses.asdict(place_of("worker", 1, towers=2, sync=False)) == {
        "variable_devices": (f"/job:ps/task:0/{CPU}", f"/job:ps/task:1/{CPU}"),
        "tower_devices": ("/job:worker/task:1/cpu:0", "/job:worker/task:1/cpu:1"),
        "task_device": "/job:worker/task:1",
        "num_machines": 1,
        "num_replicas": 3,
        "replica": 2,
        "replicas_to_aggregate": None,
        "transfer_dtype": tf.float32,
    }


def test_an_in_graph_master_has_its_towers_on_every_machine():
    place = place_of("master", towers=2, replication="in-graph")
    machines = ("/job:master/task:0", "/job:worker/task:0", "/job:worker/task:1")
    assert place.tower_devices == tuple(f"{host}/cpu:{n}" for host in machines for n in (0, 1))
    assert (place.num_machines, place.num_replicas, place.replicas_to_aggregate) == (3, 1, None)
