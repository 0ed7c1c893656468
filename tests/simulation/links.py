"""Simulated connections: two streams between the launcher and an agent.

A stream neither reorders nor doubles. It delays, it stops for a while, and it breaks: what is under
way is lost then. The messages of different hosts overtake each other.
"""

from collections.abc import Callable
from typing import Any, Optional

from launch.agent.protocol import Message
from launch.connect.connections import Connections
from launch.errors import HostError
from tests.simulation.hosts import SimHost, SimMachine
from tests.simulation.world import World

_OPEN_SECS = 30.0


class SimLink:
    """A connection; see `launch.connect.link.Link`."""

    def __init__(self, host: SimHost, hear: "Callable[[SimLink, Message], None]") -> None:
        self.host, self.world, self.heard = host, host.world, host.world.now
        self._hear = hear
        self._agent: Optional[SimMachine] = None
        self._last_up = self._last_down = 0.0
        self._is_closed = self._is_cut = False
        self.is_slow = False

    def open(self) -> None:
        """Starts an agent; HostError if the host does not answer."""
        host = self.host
        if host.is_down or max(host.frozen_until, host.cut_off_until) > self.world.now + _OPEN_SECS:
            raise HostError(f"{host.name}: no answer within {_OPEN_SECS:g} s")
        self._agent = host.agent(self)

    def send(self, message: Message) -> None:
        """Sends an order."""
        if message["do"] == "start":
            message = {**message, "env": dict(message["env"])}
        if not self._is_closed and not self._is_cut:
            self._last_down = max(self._last_down, self.world.now + self._secs())
            self.world.later(self._last_down - self.world.now, self._arrive_down, message)

    def send_up(self, message: Message) -> None:
        """Sends a message of the agent."""
        if not self._is_cut:
            self._last_up = max(self._last_up, self.world.now + self._secs())
            self.world.later(self._last_up - self.world.now, self._arrive_up, message)

    def why(self) -> str:
        """Says why the connection has ended."""
        return "the connection was reset"

    def close(self, patience_secs: float) -> None:
        """Closes the launcher's end."""
        if not self._is_closed:
            self._is_closed = True
            self._last_down = max(self._last_down, self.world.now + self._secs())
            self.world.later(self._last_down - self.world.now, self._arrive_down, None)

    def cut(self) -> None:
        """Breaks, for both sides."""
        if not self._is_cut:
            self.world.say(self.host.name, "its connection breaks")
            self._is_cut = True
            self.world.later(self._secs(), self._arrive_up, {"event": "lost"}, True)
            self.world.later(self._secs(), self._arrive_down, None, True)

    def agent_has_ended(self) -> None:
        """Tells the launcher that the agent is gone."""
        self.send_up({"event": "lost"})

    def _secs(self) -> float:
        rng = self.world.rng
        return rng.uniform(0.5, 3.0) if self.is_slow else rng.choice((0.001, 0.01, 0.1, 0.3))

    def _arrive_up(self, message: Message, is_after_cut: bool = False) -> None:
        waits = self.host.cut_off_until - self.world.now
        if self._is_cut and not is_after_cut:
            return
        if self.host.is_down and not is_after_cut:
            return
        if waits > 0 and not is_after_cut:
            self.world.later(waits, self._arrive_up, message)
        elif not self._is_closed:
            self.heard = self.world.now
            self._hear(self, message)

    def _arrive_down(self, message: Optional[Message], is_after_cut: bool = False) -> None:
        waits = self.host.cut_off_until - self.world.now
        if (self._is_cut and not is_after_cut) or self._agent is None:
            return
        if waits > 0 and not is_after_cut:
            self.world.later(waits, self._arrive_down, message)
        else:
            self.host.later(0.0, self._agent.hear, message)


class SimTransport:
    """Makes simulated connections; see `launch.connect.transport.Transport`."""

    def __init__(self, hosts: dict[str, SimHost]) -> None:
        self._hosts = hosts

    def link(self, host: Any, run_id: str, hear: Callable[[Any, Message], None]) -> SimLink:
        """Returns a connection that is not open yet."""
        return SimLink(self._hosts[host.name], hear)

    def open(self, link: SimLink, host: Any) -> None:
        """Opens a connection."""
        link.open()


class SimConnections(Connections):
    """The real connections of a run, whose threads are events of the world."""

    world: World

    def open_here(self) -> None:
        """Opens all connections."""
        for name, host in self._hosts.items():
            self._links[name] = self._open(host)

    def reopen(self, host_name: str) -> None:
        """Connects to a host again, after a while."""

        def work() -> None:
            try:
                link = self._open(self._hosts[host_name])
            except HostError as error:
                self._events.put(
                    (host_name, None, {"event": "unreachable", "reason": str(error)})
                )
            else:
                self._events.put((host_name, link, {"event": "connected"}))

        self.world.later(self.world.rng.uniform(0.1, 4.0), work)

    def drop(self, host_name: str) -> None:
        """Closes a host's connection."""
        self._links.pop(host_name).close(0)

    def finish(self) -> None:
        """Ends every agent that can be reached; see `close_all`."""
        for link in self._links.values():
            link.send({"do": "end"})
        for _, link in self._all:
            self.world.later(4.0, link.close, 0)

    def current(self, host_name: str) -> Optional[SimLink]:
        """Returns a host's connection."""
        link: Any = self._links.get(host_name)
        return link
