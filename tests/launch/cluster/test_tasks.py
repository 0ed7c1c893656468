"""The host, port and devices of each task."""

import json
from typing import Optional

import pytest

from launch.cluster.host_list import from_hosts, on_this_machine
from launch.cluster.model import Cluster, Host, Ports
from launch.cluster.tasks import Devices, Job, make_job
from launch.errors import LaunchError


def host(name: str, *roles: tuple[str, int], gpus: Optional[int] = None) -> Host:
    return Host(name, name, roles, workdir="/data", gpus=gpus)


def ports_of(job: Job) -> dict[str, Optional[int]]:
    return {f"{task.name} {task.host.name}": task.port for task in job.tasks}


def test_the_first_ports_are_the_same_on_every_host() -> None:
    hosts = (
        host("a", ("master", 1), ("worker", 1), ("ps", 2)),
        host("b", ("ps", 1)),
        host("c", ("worker", 2)),
    )
    assert ports_of(make_job(Cluster(hosts))) == {
        "master/0 a": 2222,
        "worker/0 a": 2224,
        "ps/0 a": 2223,
        "ps/1 a": 2225,
        "ps/2 b": 2223,
        "worker/1 c": 2222,
        "worker/2 c": 2224,
    }


def test_a_range_is_filled_from_its_start() -> None:
    hosts = (host("a", ("master", 1), ("worker", 1), ("ps", 1)),)
    ports = ports_of(make_job(Cluster(hosts, ports=Ports(3000, 3002))))
    assert list(ports.values()) == [3000, 3001, 3002]


def test_a_range_that_is_too_small_is_refused() -> None:
    hosts = (host("a", ("master", 1), ("worker", 1), ("ps", 1)),)
    with pytest.raises(LaunchError, match="ports 3000-3001 are too few for the 3 tasks of a"):
        make_job(Cluster(hosts, ports=Ports(3000, 3001)))


def test_ports_end_at_65535() -> None:
    with pytest.raises(LaunchError, match="too few"):
        make_job(Cluster((host("a", ("master", 1), ("ps", 9)),), ports=Ports(65530)))


def test_free_ports_are_filled_in_when_they_are_known() -> None:
    cluster = on_this_machine(workers=1, ps=1)
    assert '"worker": ["127.0.0.1:free"]' in make_job(cluster).tasks[0].tf_config
    job = make_job(cluster, (), {"localhost": [41, 42, 43]})
    assert json.loads(job.tasks[0].tf_config)["cluster"] == {
        "master": ["127.0.0.1:41"],
        "ps": ["127.0.0.1:43"],
        "worker": ["127.0.0.1:42"],
    }


def test_an_evaluator_is_not_in_the_cluster() -> None:
    job = make_job(from_hosts("a,b", evaluator=True))
    evaluator = job.tasks[-2]
    assert evaluator.name == "evaluator/0"
    assert evaluator.port is None
    config = json.loads(evaluator.tf_config)
    assert sorted(config["cluster"]) == ["chief", "ps", "worker"]
    assert config["task"] == {"type": "evaluator", "index": 0}


def test_an_ipv6_address_is_bracketed() -> None:
    job = make_job(from_hosts("fd00::1"))
    assert json.loads(job.tasks[0].tf_config)["cluster"]["master"] == ["[fd00::1]:2222"]


def test_a_ps_has_no_gpu() -> None:
    job = make_job(from_hosts("a"))
    assert [task.devices for task in job.tasks] == [Devices(), Devices(gpus=())]


def test_gpus_are_given_out_one_after_the_other() -> None:
    hosts = (host("a", ("master", 1), ("worker", 1), ("ps", 1), gpus=4),)
    job = make_job(Cluster(hosts, gpus_per_task=2))
    assert [task.devices for task in job.tasks] == [
        Devices((0, 1), (0, 2)),
        Devices((2, 3), (1, 2)),
        Devices(()),
    ]


def test_more_gpus_than_there_are_is_refused() -> None:
    hosts = (host("a", ("master", 1), ("worker", 1), gpus=3),)
    with pytest.raises(LaunchError, match="a has 3 GPUs, but 2 trainers with 2 each need 4"):
        make_job(Cluster(hosts, gpus_per_task=2))


def test_without_numbers_the_trainers_of_a_host_share_what_there_is() -> None:
    job = make_job(on_this_machine(workers=2, ps=1))
    assert [task.devices.share for task in job.tasks] == [(0, 3), (1, 3), (2, 3), None]
    assert job.tasks[1].devices.words() == "part 2 of 3 of the cores, the same part of the GPUs"


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        ((), "data"),
        (("--data-dir", "/records"), "/records"),
        (("--x", "--data_dir=/my_records"), "/my_records"),
        (("--work-dir", "wd", "--data-dir", "recs"), "wd/recs"),
        (("--work_dir=/jobs/7",), "/jobs/7/data"),
        (("--work-dir=wd", "--data-dir=/records"), "/records"),
        (("--work-dir=wd", "--data-dir=gs://bucket/records"), "gs://bucket/records"),
        (("--work-dir=wd", "--data-dir=~/records"), "~/records"),
    ],
)
def test_the_data_are_where_the_arguments_say(arguments: tuple[str, ...], folder: str) -> None:
    assert make_job(from_hosts("a"), arguments).folder("data") == folder
