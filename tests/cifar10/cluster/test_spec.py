"""Cluster: what a task knows of itself and of the others, and how addresses are written."""

import pytest

from cifar10.cluster.spec import Cluster, Task, split_address
from cifar10.errors import ConfigError

JOBS = {
    "master": ("ip0:2222",),
    "worker": ("ip1:2222", "ip0:2224", "ip1:2224"),
    "ps": ("ip0:2223", "ip1:2223"),
}


def task(task_type: str, task_index: int = 0, **jobs: tuple[str, ...]) -> Cluster:
    return Cluster(jobs or JOBS, task_type, task_index, has_evaluator=False, source="TF_CONFIG")


def test_a_task_has_a_name_and_an_address():
    worker = task("worker", 1).own
    assert worker == Task("worker", 1, "worker/1", "ip0:2224")
    assert str(worker) == "worker/1 (ip0:2224)"
    assert worker.cpu == "/job:worker/task:1/device:CPU:0"
    assert task("ps", 1).own.address == "ip1:2223"


def test_trainers_are_the_master_then_the_workers():
    roles = [one.role for one in task("ps").trainers]
    assert roles == ["master/0", "worker/0", "worker/1", "worker/2"]
    assert task("ps").num_trainers == 4
    assert [one.address for one in task("ps").of("ps")] == ["ip0:2223", "ip1:2223"]


def test_a_cluster_is_alone_with_one_trainer_and_no_ps():
    assert task("master", master=("a:1",)).is_alone
    assert not task("master", master=("a:1",), ps=("a:2",)).is_alone
    assert not task("master", master=("a:1",), worker=("a:2",)).is_alone


def test_trainers_on_one_host_share_it_and_ps_do_not_count():
    assert task("master").host_share == (0, 2)
    assert task("worker", 0).host_share == (0, 2)
    assert task("worker", 1).host_share == (1, 2)
    assert task("worker", 2).host_share == (1, 2)
    assert task("ps", 1).host_share == (0, 1)
    assert task("evaluator").host_share == (0, 1)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("ip0:2222", ("ip0", 2222)),
        ("[::1]:2222", ("::1", 2222)),
        ("compose_worker_1:2222", ("compose_worker_1", 2222)),
    ],
)
def test_an_address_is_host_and_port(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize(
    ("address", "way_out"),
    [
        ("ip0", "which has no port; add one, e.g. ip0:2222"),
        ("[::1]", "which has no port; add one, e.g. [::1]:2222"),
        (":2222", "which has no valid host; name one, e.g. ip0:2222"),
        ("[ip0]:2222", "which has no valid host"),
        ("ip0:0", "the port must be a number from 1 to 65535"),
        ("ip0:65536", "the port must be a number from 1 to 65535"),
        ("ip0:ssh", "the port must be a number from 1 to 65535"),
        ("::1:2222", "put an IPv6 host in brackets, e.g. [::1]:2222"),
        ("grpc://ip0:2222", "a URL; leave its scheme and path out, e.g. ip0:2222"),
    ],
)
def test_anything_else_is_refused_with_its_task_and_the_way_out(address, way_out):
    with pytest.raises(ConfigError) as refusal:
        split_address(address, "worker/1")
    assert str(refusal.value).startswith(f"worker/1 must be host:port, got {address!r}")
    assert way_out in str(refusal.value)
