"""Simulated connections: two streams between the launcher and an agent.

A stream neither reorders nor doubles. It delays, it stops for a while, and it breaks: what is under
way is lost then. The messages of different hosts overtake each other.
"""

from collections import deque
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
        self._up: deque[Message] = deque()
        self._down: deque[Optional[Message]] = deque()  # None is the end of the stream
        self._is_closed = self._is_cut = False
        self.is_slow = False

    def ask(self, order: Message) -> Message:
        """Starts an agent; HostError if the host does not answer."""
        host = self.host
        if host.is_down or max(host.frozen_until, host.cut_off_until) > self.world.now + _OPEN_SECS:
            raise HostError(f"{host.name}: no answer within {_OPEN_SECS:g} s")
        self._agent = host.agent(self)
        self.send(order)
        return {"event": "ready", "ports": []}

    def send(self, message: Message) -> None:
        """Sends an order."""
        if message["do"] == "start":
            message = {**message, "env": dict(message["env"])}
        if not self._is_closed:
            self._put_down(message)

    def _put_down(self, message: Optional[Message]) -> None:
        if not self._is_cut:
            self._down.append(message)
            self._last_down = max(self._last_down, self.world.now + self._secs())
            self.world.later(self._last_down - self.world.now, self._arrive_down)

    def send_up(self, message: Message) -> None:
        """Sends a message of the agent."""
        if not self._is_cut:
            self._up.append(message)
            self._last_up = max(self._last_up, self.world.now + self._secs())
            self.world.later(self._last_up - self.world.now, self._arrive_up)

    def why(self) -> str:
        """Says why the connection has ended."""
        return "the connection was reset"

    def kill(self) -> None:
        """Closes the launcher's end."""
        if not self._is_closed:
            self._is_closed = True
            self._put_down(None)

    def cut(self) -> None:
        """Breaks, for both sides."""
        if not self._is_cut:
            self.world.say(self.host.name, "its connection breaks")
            self._is_cut = True
            self._up, self._down = deque([{"event": "lost"}]), deque([None])
            self.world.later(self._secs(), self._take_up)
            self.world.later(self._secs(), self._arrive_down)

    def agent_has_ended(self) -> None:
        """Tells the launcher that the agent is gone."""
        self.send_up({"event": "lost"})

    def _secs(self) -> float:
        rng = self.world.rng
        return rng.uniform(0.5, 3.0) if self.is_slow else rng.choice((0.001, 0.01, 0.1, 0.3))

    def _arrive_up(self) -> None:
        waits = self.host.cut_off_until - self.world.now
        if self.host.is_down or self._is_cut:
            return
        if waits > 0:
            self.world.later(waits, self._arrive_up)
        else:
            self._take_up()

    def _take_up(self) -> None:
        """Takes the message that was sent first, whichever has arrived: it is a stream."""
        if self._up and not self._is_closed:
            self.heard = self.world.now
            self._hear(self, self._up.popleft())

    def _arrive_down(self) -> None:
        waits = self.host.cut_off_until - self.world.now
        if waits > 0 and not self._is_cut:
            self.world.later(waits, self._arrive_down)
        else:
            self.host.later(0.0, self._take_down)

    def _take_down(self) -> None:
        if self._down and self._agent is not None:
            self._agent.hear(self._down.popleft())


class SimTransport:
    """Makes simulated connections; see `launch.connect.link.Transport`."""

    def __init__(self, hosts: dict[str, SimHost]) -> None:
        self._hosts = hosts

    def link(
        self, host: Any, run_id: str, hear: Callable[[Any, Message], None], lease_secs: float
    ) -> SimLink:
        """Returns a connection."""
        return SimLink(self._hosts[host.name], hear)


class SimConnections(Connections):
    """The real connections of a run, whose threads are events of the world."""

    world: World

    def open_here(self) -> None:
        """Opens all connections."""
        for name, host in self._hosts.items():
            self._links[name], _ = self._open(host)

    def silent(self, now: float) -> list[str]:
        """Looks for silent agents, and sends the heartbeats as often."""
        if now >= self._next_look:
            self.beat()
        return super().silent(now)

    def reopen(self, host_name: str, wait_secs: float = 0.0) -> None:
        """Connects to a host again, after a while."""
        secs = self.world.rng.uniform(0.1, 4.0) + wait_secs
        self.world.later(secs, self._open_again, host_name, 0.0)

    def finish(self) -> None:
        """Ends every agent that can be reached; see `Connections`."""
        for link in self._links.values():
            link.send({"do": "end"})
        for link in self._all:
            self.world.later(4.0, link.kill)

    def current(self, host_name: str) -> Optional[SimLink]:
        """Returns a host's connection."""
        link: Any = self._links.get(host_name)
        return link
