"""Cluster descriptions without a file: which tasks run on which host."""

from pathlib import Path
from typing import Optional

import pytest

from launch.backends.registry import KINDS
from launch.cluster import host_list
from launch.cluster.host_list import on_chosen_hosts
from launch.cluster.model import Ports
from launch.errors import LaunchError


def roles(backend: str, nodes: Optional[int] = None, **counts: int) -> list[dict[str, int]]:
    return [dict(host.roles) for host in on_chosen_hosts(KINDS[backend], counts, nodes).hosts]


def test_by_default_each_trainer_has_a_node_and_the_ps_stand_beside_them() -> None:
    dealt = [{"master": 1, "ps": 1}, {"worker": 1, "ps": 1}, {"worker": 1}]
    assert roles("slurm", master=1, worker=2, ps=2) == dealt


def test_tasks_are_dealt_out_over_fewer_nodes_in_turns() -> None:
    dealt = [{"master": 1, "worker": 1, "ps": 1}, {"worker": 2}]
    assert roles("slurm", 2, master=1, worker=3, ps=1) == dealt


def test_with_more_nodes_than_trainers_the_ps_come_first_to_the_free_ones() -> None:
    dealt = [{"master": 1, "ps": 1}, {"worker": 1}, {"ps": 1}]
    assert roles("slurm", 3, master=1, worker=1, ps=2) == dealt


def test_each_pod_is_a_host_of_its_own() -> None:
    dealt = [{"chief": 1}, {"worker": 1}, {"ps": 1}, {"evaluator": 1}]
    assert roles("kubernetes", chief=1, worker=1, ps=1, evaluator=1) == dealt


def test_more_nodes_than_tasks_are_refused() -> None:
    with pytest.raises(LaunchError, match="3 nodes are too many for 2 tasks; use at most 2"):
        roles("slurm", 3, master=1, ps=1)


def test_jobs_that_may_share_a_node_find_free_ports() -> None:
    assert on_chosen_hosts(KINDS["slurm"], {"master": 1}).ports == Ports(low=None)
    assert on_chosen_hosts(KINDS["kubernetes"], {"master": 1}).ports == Ports(low=2222)


@pytest.mark.parametrize("word", ["node0:2222", "user@host:22", "[fe80::1]:2222"])
def test_a_number_after_a_host_is_refused_since_it_could_mean_three_things(word: str) -> None:
    rule = (
        f"{word.rpartition('@')[2]!r}: the number could be the port of a task, the port of ssh or "
        "a number of tasks; give the name alone: `ports:` (default 2222) and `roles:` are set in a "
        "cluster file, the port of ssh in ~/.ssh/config"
    )
    with pytest.raises(LaunchError) as refused:
        host_list.from_hosts(f"a,{word}")
    assert str(refused.value) == rule


@pytest.mark.parametrize(
    ("word", "name"),
    [("::1", "::1"), ("[fe80::1]", "fe80::1"), ("me@fe80::1%eth0", "fe80::1%eth0"), ("a.b", "a.b")],
)
def test_an_ipv6_address_is_a_host_with_brackets_or_without(word: str, name: str) -> None:
    assert [host.address for host in host_list.from_hosts(word).hosts] == [name]


@pytest.mark.parametrize("word", ["a:b", "fe80::1%", "[a]", "fe80::12345", "-oProxyCommand=x", ""])
def test_what_is_no_name_and_no_address_is_refused(word: str) -> None:
    with pytest.raises(LaunchError, match="is not a host: it must be NAME or USER@NAME"):
        host_list.from_hosts(word)


def test_a_current_folder_that_has_been_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(host_list, "IS_INSTALLED", True)
    for folder in (host_list.code_folder, host_list.checkout):
        with pytest.raises(LaunchError, match="^the current folder has been removed; change to"):
            folder()
