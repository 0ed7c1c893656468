from pathlib import Path

import pytest

from benchmarks.advise import Way, best_of, ways_on_hosts
from launch.backends.registry import BACKENDS
from launch.cluster.cluster_file import read_cluster

ALONE = Way("alone", 1, 0)
TWO, TWO_SYNC, FOUR = Way("two", 2, 1), Way("two", 2, 1, sync=True), Way("four", 4, 1)
HOSTS = {"hosts": [{"name": "a"}, {"name": "b", "user": "alice"}], "workdir": "/data"}


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ({ALONE: 100.0, FOUR: 200.0, TWO_SYNC: 180.0}, FOUR),
        ({TWO: 100.0, TWO_SYNC: 96.0}, TWO_SYNC),  # as fast, and fresher
        ({TWO_SYNC: 100.0, ALONE: 97.0}, ALONE),  # as fresh, with smaller updates
    ],
)
def test_of_ways_as_fast_the_freshest_is_the_best(rates: dict[Way, float], best: Way) -> None:
    assert best_of({way: [rate] for way, rate in rates.items()}, 128) == best


def test_the_winners_command_can_be_run_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "advised.yaml"
    assert ALONE.command(["--num-layers=8"], file) == ["cifar10_main.py", "--num-layers=8"]
    words = ["-m", "launch", "up", "--on", "local", "--workers", "1", "--ps", "1", "--"]
    assert TWO_SYNC.command([], file) == words
    assert TWO.command([], file) == [*words, "--sync=false"]
    assert not file.exists()
    for way in ways_on_hosts(HOSTS):
        assert way.command([], file)[:5] == ["-m", "launch", "up", "--cluster", str(file)]
        cluster = read_cluster(str(file), BACKENDS)
        assert cluster.count("master", "worker") == way.trainers
        assert cluster.count("ps") == way.ps
        assert {host.workdir for host in cluster.hosts} == {"/data"}
    assert [(host.name, host.user) for host in cluster.hosts] == [("a", None), ("b", "alice")]
