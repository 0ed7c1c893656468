import dataclasses
from pathlib import Path

import pytest

from benchmarks.scaling.advise_report import Result, best_of, ranked
from benchmarks.scaling.advised_ways import Way, as_yaml, ways_on_hosts, ways_on_this_machine
from benchmarks.scaling.measured_run import Figures
from launch.backends.registry import KINDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import from_hosts, on_this_machine
from launch.cluster.model import Cluster, Host, Limits, Ports


def result(trainers: int, rate: float, *, sync: bool = False, ps: int = 1) -> Result:
    way = Way("way", on_this_machine(trainers - 1, ps), sync, False)
    staleness = 0.0 if sync else trainers - 1.0
    return Result(way, 128, (Figures(rate, 0.1, 0.1, staleness, {}, 0.0, 0.0),))


def test_ways_are_ranked_by_speed() -> None:
    assert [one.rate for one in ranked([result(1, 50), result(2, 70)])] == [70, 50]


def test_a_clearly_faster_way_is_the_best() -> None:
    fast = result(4, 200)
    assert best_of([result(1, 100), fast, result(2, 180, sync=True)]) == fast
    assert fast.why([fast]) == "way, asynchronous, 200 images/s"


def test_of_ways_as_fast_the_least_stale_is_the_best() -> None:
    stale, fresh = result(2, 100), result(2, 96, sync=True)
    assert best_of([stale, fresh]) == fresh
    assert "within 5 % of the fastest" in fresh.why([stale, fresh])


def test_of_ways_as_fresh_that_with_the_smallest_updates_is_the_best() -> None:
    alone = result(1, 97, ps=0)
    assert best_of([result(2, 100, sync=True), alone]) == alone
    assert alone.update_images == 128
    assert result(2, 100, sync=True).update_images == 256


def test_this_machine_is_tried_alone_and_with_servers() -> None:
    ways = ways_on_this_machine()
    assert (ways[0].title, ways[0].trainers, ways[0].ps) == ("one process", 1, 0)
    tried = {(way.trainers, way.ps, way.sync) for way in ways[1:]}
    assert {(2, 1, False), (2, 1, True), (2, 2, False), (2, 2, True)} <= tried


def test_two_hosts_are_tried_in_every_way() -> None:
    ways = ways_on_hosts(from_hosts("a,b"))
    tried = [(way.title, way.updates) for way in ways]
    assert tried == [
        ("one process on a", "by itself"),
        ("2 trainers and 1 ps on a", "asynchronous"),
        ("2 trainers and 1 ps on a", "synchronous"),
        ("2 trainers on 2 hosts, 1 ps beside them", "asynchronous"),
        ("2 trainers on 2 hosts, 1 ps beside them", "synchronous"),
        ("2 trainers on 2 hosts, 2 ps beside them", "asynchronous"),
        ("2 trainers on 2 hosts, 2 ps beside them", "synchronous"),
        ("ps on a, 1 trainer on the other hosts", "by itself"),
    ]
    placed = {host.name: dict(host.roles) for host in ways[-1].cluster.hosts}
    assert placed == {"a": {"ps": 1}, "b": {"master": 1}}


def test_one_host_has_no_ways_across_hosts() -> None:
    assert [way.title for way in ways_on_hosts(from_hosts("a"))] == [
        "one process on a",
        "2 trainers and 1 ps on a",
        "2 trainers and 1 ps on a",
    ]


def test_the_winners_command_can_be_run_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "advised.yaml"
    alone, *_, both = ways_on_this_machine()
    assert alone.command(["--num-layers=8"], file) == "python cifar10_main.py --num-layers=8"
    command = both.command(["--sync=False"], file)
    assert command.startswith("python -m launch up --on local --workers ")
    assert command.endswith(" -- --sync=False")
    assert not file.exists()
    way = ways_on_hosts(from_hosts("a,b"))[-1]
    assert way.command([], file) == f"python -m launch up --cluster {file} -- "
    assert read_cluster(str(file), KINDS).hosts == way.cluster.hosts


def test_a_cluster_file_that_was_advised_says_the_same(tmp_path: Path) -> None:
    host = Host(
        name="a",
        address="10.0.0.1",
        roles=(("master", 1), ("ps", 2)),
        workdir="/data",
        user="alice",
        python="python3.11",
        agent_python="python3",
        gpus=0,
    )
    cluster = Cluster(
        hosts=(host, Host("b", "b", (("worker", 2),), "/work")),
        ports=Ports(3000, 3100),
        environment=(("OMP_NUM_THREADS", "2"),),
        passed=("TOKEN",),
        limits=Limits(start_secs=None, grace_secs=5),
        restarts=2,
        gpus_per_task=0,
        sync=True,
    )
    for one in (cluster, dataclasses.replace(cluster, ports=Ports(None), gpus_per_task=None)):
        file = tmp_path / "cluster.yaml"
        file.write_text(as_yaml(one))
        assert dataclasses.replace(read_cluster(str(file), KINDS), source=one.source) == one


@pytest.mark.parametrize("port", [2222, 4000])
def test_a_first_port_is_kept(tmp_path: Path, port: int) -> None:
    cluster = dataclasses.replace(from_hosts("a"), ports=Ports(port))
    (tmp_path / "cluster.yaml").write_text(as_yaml(cluster))
    assert read_cluster(str(tmp_path / "cluster.yaml"), KINDS).ports == Ports(port)
