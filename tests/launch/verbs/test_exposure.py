"""The warning of a check that the internet may reach the tasks."""

import socket
import threading
from dataclasses import replace
from typing import Any

import pytest

from launch.cluster.host_list import from_hosts
from launch.cluster.model import Cluster
from launch.cluster.tasks import Job, make_job
from launch.verbs import exposure
from launch.verbs.exposure import warnings
from launch.verbs.facts import Facts

_REST = (
    "TensorFlow's servers admit whoever reaches them: admit only the cluster's hosts there with a "
    "firewall (`ports:` sets the ports), or use hosts with private addresses alone"
)


def job(hosts: str = "10.0.0.1,10.0.0.2", **changes: Any) -> Job:
    return make_job(replace(from_hosts(hosts, python="python3", workdir="/data"), **changes))


def facts(first: str, second: str, *public: str) -> dict[str, Facts]:
    return {first: Facts(found={"public": []}), second: Facts(found={"public": list(public)})}


def test_private_hosts_are_no_reason_to_warn() -> None:
    assert warnings(job(), facts("10.0.0.1", "10.0.0.2")) == []


def test_a_host_with_a_public_address_is_warned_of_with_its_ports_and_the_way_out() -> None:
    assert warnings(job(), facts("10.0.0.1", "10.0.0.2", "8.8.4.4", "2606:4700::1")) == [
        "10.0.0.2: 8.8.4.4, 2606:4700::1 may be reached from the internet, on ports 2222, 2223; "
        + _REST
    ]


def test_a_public_address_in_the_cluster_file_is_warned_of_though_no_interface_has_it() -> None:
    found = warnings(job("10.0.0.1,8.8.4.4"), facts("10.0.0.1", "8.8.4.4"))
    assert found == [
        f"8.8.4.4: 8.8.4.4 may be reached from the internet, on ports 2222, 2223; {_REST}"
    ]


def test_an_address_is_named_once() -> None:
    (found,) = warnings(job("10.0.0.1,8.8.4.4"), facts("10.0.0.1", "8.8.4.4", "8.8.4.4"))
    assert found.startswith("8.8.4.4: 8.8.4.4 may be reached")


def test_a_host_that_did_not_answer_is_judged_by_the_cluster_file() -> None:
    both = {"10.0.0.1": Facts(unreachable="no"), "8.8.4.4": Facts(unreachable="no")}
    assert len(warnings(job("10.0.0.1,8.8.4.4"), both)) == 1


def test_a_name_that_does_not_resolve_is_no_error() -> None:
    names = ("nowhere.invalid", "10.0.0.2")
    assert warnings(job(",".join(names)), facts(*names)) == []


NAMES = [f"node{number}" for number in range(40)]


def _named() -> tuple[Job, dict[str, Facts]]:
    return job(",".join(NAMES)), {name: Facts(found={"public": []}) for name in NAMES}


def test_names_are_resolved_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(20)

    def getaddrinfo(name: str, *_: Any, **__: Any) -> list[Any]:
        together.wait(60)  # until twenty names are looked up at the same time
        return [(None, None, None, "", ("8.8.4.4", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(exposure, "_RESOLVE_SECS", 60)
    found = warnings(*_named())
    assert [one.partition(" may be")[0] for one in found] == [f"{n}: 8.8.4.4" for n in NAMES]


def test_a_name_server_that_hangs_is_told_of_and_delays_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_over = threading.Event()

    def getaddrinfo(name: str, *_: Any, **__: Any) -> list[Any]:
        if name != "node39":
            is_over.wait(60)
        return [(None, None, None, "", ("8.8.4.4", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(exposure, "_RESOLVE_SECS", 1)
    found = warnings(*_named())
    is_over.set()
    assert len(found) == 40
    assert found[0] == (
        "node0: node0 did not resolve within 1 s, so the internet may reach it or not; see "
        "whether this machine's name server answers"
    )
    assert found[39].startswith("node39: 8.8.4.4 may be reached")


def test_a_trainer_alone_listens_nowhere() -> None:
    hosts = job().cluster.hosts
    alone = make_job(Cluster((replace(hosts[1], roles=(("master", 1),)),)))
    assert warnings(alone, facts("10.0.0.1", "10.0.0.2", "8.8.4.4")) == []
