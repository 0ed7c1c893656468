"""How a trainer trains with the others: what they must agree on, and where its graph goes."""

import dataclasses
import pathlib
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster import server
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.input.records import open_records
from cifar10.run import cluster_training
from cifar10.run.cluster_training import terms
from cifar10.step.params import Replication
from testbeds.ports import free_ports
from tests.cifar10 import record_files
from tests.cifar10.steps import make_plan

CPU = "device:CPU:0"
JOBS = {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1", "e:1")}


def task(job: str, index: int = 0) -> Cluster:
    return Cluster(JOBS, job, index, has_evaluator=False, source="TF_CONFIG")


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(train_batch_size=12, **settings)


def place_of(job: str, index: int = 0, towers: int = 1, **settings: Any) -> Replication:
    plan = make_plan(towers, 1)
    return cluster_training.replication(config(**settings), task(job, index), plan, None)


@pytest.mark.parametrize(
    "setting",
    [
        {"train_batch_size": 32},
        {"sync": False},
        {"hidden_units": 50},
        {"schedule": "constant"},
        {"optimizer": "adam"},
        {"train_steps": 7},
        {"seed": 7},
    ],
    ids=str,
)
def test_trainers_agree_on_each_setting_that_decides_a_step(tutorial_data, setting):
    (name,) = setting
    records = open_records(str(tutorial_data))
    one = terms(TrainConfig(model="mlp"), records)
    other = terms(TrainConfig(model="mlp", **setting), records)
    flag = "--" + name.replace("_", "-")
    assert {key for key in one if one[key] != other[key]} == {flag}
    assert other[flag] == str(setting[name])


def test_trainers_agree_on_the_records_and_not_on_their_machines(tutorial_data, tmp_path):
    place: pathlib.Path = tmp_path / "data"
    record_files.write_numbered(place, "train", 20)
    one = terms(TrainConfig(num_towers=2), open_records(str(tutorial_data)))
    other = terms(TrainConfig(output_dir="elsewhere"), open_records(str(place)))
    assert {key for key in one if one[key] != other[key]} == {"the training records"}


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


def test_an_in_graph_master_has_towers_on_every_machine():
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    jobs = {"master": (addresses[0],), "worker": tuple(addresses[1:])}
    one = Cluster(jobs, "master", 0, has_evaluator=False, source="TF_CONFIG")
    targets = [
        server.start(dataclasses.replace(one, task_type=job, task_index=index), tf.ConfigProto())
        for job, index in (("worker", 0), ("worker", 1), ("master", 0))
    ]
    settings, plan = config(replication="in-graph"), make_plan(2, 1)
    place = cluster_training.replication(settings, one, plan, targets[-1])
    machines = ("/job:master/task:0", "/job:worker/task:0", "/job:worker/task:1")
    assert place.tower_devices == tuple(f"{one}/{CPU}" for one in machines for _ in range(2))
    assert (place.num_machines, place.num_replicas, place.replicas_to_aggregate) == (3, 1, None)


@pytest.mark.parametrize(
    ("settings", "how", "images"),
    [
        ({"sync": False}, "asynchronous", 12),
        ({"replicas_to_aggregate": 2}, "synchronous, 2 of 3 gradients an update", 24),
    ],
)
def test_a_trainer_says_what_it_is_and_how_it_trains(settings, how, images):
    place = place_of("worker", 1, **settings)
    assert cluster_training.describe(config(**settings), task("worker", 1), place) == (
        f"worker/1 of 3 trainers and 2 parameter servers, {how}, {images} images a global step"
    )
    assert cluster_training.as_dict(config(**settings), task("worker", 1), place) == {
        "task": "worker/1",
        "tasks": {job: list(tasks) for job, tasks in JOBS.items()},
        "replication": "between-graph",
        "gradients_an_update": place.replicas_to_aggregate,
        "images_a_global_step": images,
    }


def test_the_masters_estimator_knows_no_cluster_and_a_workers_knows_its_task():
    def run_config(job: str, index: int = 0, **settings: Any) -> Any:
        plan, target = make_plan(1, 1), "grpc://here:1"
        return cluster_training.run_config(config(), task(job, index), plan, target, **settings)

    master = run_config("master", model_dir="/nowhere")
    assert (master.master, master.is_chief, master.task_type) == ("grpc://here:1", True, "worker")
    assert master.evaluation_master == ""
    assert master.cluster_spec.as_dict() == {}
    assert master.model_dir == "/nowhere"
    filters = list(master.session_config.device_filters)
    assert filters == ["/job:ps", "/job:master/task:0"]
    worker = run_config("worker", 1)
    assert worker.master == "grpc://here:1"
    assert (worker.is_chief, worker.task_type, worker.task_id) == (False, "worker", 1)
    assert worker.cluster_spec.as_dict() == {job: list(tasks) for job, tasks in JOBS.items()}
    assert list(worker.session_config.device_filters) == ["/job:ps", "/job:worker/task:1"]
