"""How the connections of a run are opened."""

import threading
from dataclasses import replace
from typing import Any, Optional, cast

from launch.cluster.host_list import from_hosts
from launch.cluster.model import Limits
from launch.connect.connections import Connections, Event
from launch.connect.inbox import Inbox
from launch.errors import HostError


class FakeLink:
    """A connection that tells of a heartbeat."""

    def __init__(self) -> None:
        self.heard = 0.0
        self.has_beaten = threading.Event()

    def send(self, message: "dict[str, Any]") -> None:
        if message["do"] == "beat":
            self.has_beaten.set()

    def close(self, patience_secs: float) -> None:
        pass


class FakeTransport:
    """Opens the connection to the second host once the agent of the first has had a heartbeat."""

    def __init__(self) -> None:
        self.links: dict[str, FakeLink] = {}
        self.first_is_open = threading.Event()

    def host_logs(self, run_id: str) -> Optional[str]:
        return None

    def link(self, host: Any, run_id: str, hear: Any) -> FakeLink:
        self.links[host.name] = FakeLink()
        return self.links[host.name]

    def open(self, link: FakeLink, host: Any) -> None:
        if host.name == "ip0":
            self.first_is_open.set()
        elif not (self.first_is_open.wait(60) and self.links["ip0"].has_beaten.wait(20)):
            raise HostError("the agent of ip0 has heard nothing")


def test_an_agent_that_waits_for_other_hosts_hears_from_the_launcher() -> None:
    cluster = from_hosts("ip0,ip1", python="python3", workdir="/data")
    cluster = replace(cluster, limits=Limits(lease_secs=0.6))
    events: Inbox[Event] = Inbox(8)
    transport: Any = FakeTransport()
    connections = Connections(cluster, "run", transport, events)
    try:
        assert connections.open_all(lambda: False)
    finally:
        connections.close_all()


def test_agents_hear_from_a_launcher_that_waits_for_its_disk() -> None:
    cluster = replace(from_hosts("ip0"), limits=Limits(lease_secs=0.6))
    events: Inbox[Event] = Inbox(8)
    transport: Any = FakeTransport()
    connections = Connections(cluster, "run", transport, events)
    connections.open_all(lambda: False)
    link = transport.links["ip0"]
    try:
        for _ in range(3):  # while this thread does nothing
            link.has_beaten.clear()
            assert link.has_beaten.wait(20)
    finally:
        connections.close_all()
    link.has_beaten.clear()
    assert not link.has_beaten.wait(0.5)


def test_an_agent_is_late_only_for_a_launcher_that_has_looked_all_the_time() -> None:
    cluster = replace(from_hosts("ip0"), limits=Limits(lease_secs=6))
    events: Inbox[Event] = Inbox(8)
    connections = Connections(cluster, "run", cast(Any, FakeTransport()), events)
    link: Any = FakeLink()
    connections.use("ip0", link)
    link.heard = 100.0
    assert connections.silent(106.0) == []
    assert connections.silent(106.5) == []  # looks once a second
    assert connections.silent(109.0) == []  # it was away, so that messages may be unread
    assert connections.silent(110.0) == [("ip0", link)]
