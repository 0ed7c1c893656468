"""How the connections of a run are opened."""

import threading
from dataclasses import replace
from typing import Any, Optional

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
    assert Connections(cluster, "run", transport, events).open_all(lambda: False)
