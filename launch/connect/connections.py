"""Opens, keeps alive and closes a run's connections, one to the agent on each host."""

import queue
import threading
from collections.abc import Callable
from typing import Optional, TypeVar, Union

from launch.agent.protocol import Message
from launch.cluster.model import Cluster, Host
from launch.connect.everywhere import everywhere
from launch.connect.link import Link
from launch.connect.transport import Transport
from launch.errors import HostError

_CLOSE_SECS = 4.0
_BEATS = 6  # in `lease_secs`

# (host's name, connection, message). The message comes from the agent, from `Link` ("lost") or from
# `Connections.reopen` ("connected" or "unreachable").
Event = tuple[str, Optional[Link], Message]


class Connections:
    """The connections of a run, one to the agent on each host.

    Args:
      cluster: the hosts, and the limits for their agents.
      run_id: the id of the run.
      transport: how the launcher reaches the agents.
      events: the queue that receives the events; where it is full, the hosts must wait.
      containers: the arguments of `launch.agent.containers.Containers`; None for tasks that are
        plain processes.

    Attributes:
      lease_secs: the seconds of silence after which an agent counts as lost.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_id: str,
        transport: Transport,
        events: "Union[queue.Queue[Event], queue.SimpleQueue[Event]]",
        containers: Optional[Message] = None,
    ) -> None:
        self.lease_secs = cluster.limits.lease_secs
        self._next_look = 0.0
        self._closed = threading.Event()
        self._cluster = cluster
        self._run_id = run_id
        self._transport = transport
        self._events = events
        self._containers = containers
        self._hosts = {host.name: host for host in cluster.hosts}
        self._links: dict[str, Link] = {}
        self._all: list[tuple[str, Link]] = []  # (host's name, connection), dropped ones included

    def open_all(self, is_stopped: Callable[[], bool]) -> bool:
        """Connects to all hosts; returns False if `is_stopped` became true meanwhile.

        From now on, a thread sends heartbeats to the agents: they do not take this process for
        lost while it waits for a disk.

        Args:
          is_stopped: a function that returns whether to give up; called ten times a second.

        Raises:
          HostError: a host cannot be reached; the message names each such host.
        """

        def open_one(host: Host) -> None:
            self._links[host.name] = self._open(host)

        def meanwhile() -> None:
            if is_stopped():
                for _, link in list(self._all):
                    link.close(0)

        threading.Thread(target=self._keep_beating, daemon=True).start()
        answers = everywhere(self._cluster.hosts, open_one, meanwhile=meanwhile)
        if is_stopped():
            return False
        answers.of_all()
        return True

    def reopen(self, host_name: str) -> None:
        """Connects to a host again in a thread; "connected" or "unreachable" comes as an event."""

        def work() -> None:
            try:
                link = self._open(self._hosts[host_name])
            except HostError as error:
                event: Event = (host_name, None, {"event": "unreachable", "reason": str(error)})
            else:
                event = (host_name, link, {"event": "connected"})
            self._events.put(event)

        threading.Thread(target=work, daemon=True).start()

    def use(self, host_name: str, link: Link) -> None:
        """Makes a connection from `reopen` the current one of its host."""
        self._links[host_name] = link

    def send(self, host_name: str, message: Message) -> bool:
        """Sends a message to a host; returns False if the host has no current connection."""
        link = self._links.get(host_name)
        if link is not None:
            link.send(message)
        return link is not None

    def is_current(self, host_name: str, link: Optional[Link]) -> bool:
        """Returns whether this is the current connection to that host, not a dropped one."""
        return link is not None and self._links.get(host_name) is link

    def beat(self) -> None:
        """Sends a heartbeat to all agents, which answer it."""
        for link in list(self._links.values()):  # other threads may add some
            link.send({"do": "beat"})

    def silent(self, now: float) -> list[tuple[str, Link]]:
        """Looks for agents that were silent for `lease_secs`, unless it has looked just now.

        Args:
          now: the time, by time.monotonic.

        Returns:
          (host's name, connection) of each such agent.
        """
        if now < self._next_look:
            return []
        # If this process was suspended (Ctrl-Z) or waited for a disk, messages are still unread.
        was_away = now > self._next_look + 1 and self._next_look > 0
        self._next_look = now + self.lease_secs / _BEATS
        late = 0.0 if was_away else now - self.lease_secs
        return [(name, link) for name, link in self._links.items() if link.heard < late]

    def has_all(self) -> bool:
        """Returns whether every host has a current connection."""
        return len(self._links) == len(self._hosts)

    def drop(self, host_name: str) -> None:
        """Closes a host's connection in a thread, and sends nothing more to the host."""
        link = self._links.pop(host_name)
        threading.Thread(target=link.close, args=(0,), daemon=True).start()

    def close_all(self) -> None:
        """Ends every agent that can be reached, and closes every connection."""
        self._closed.set()
        for link in self._links.values():
            link.send({"do": "end"})
        current = list(self._links.values())

        def close(host: Host) -> None:
            for name, link in self._all:
                if name == host.name:
                    link.close(_CLOSE_SECS if link in current else 0)

        everywhere(self._cluster.hosts, close)

    def _keep_beating(self) -> None:
        while not self._closed.wait(self.lease_secs / _BEATS):
            self.beat()

    def _open(self, host: Host) -> Link:
        def hear(link: Link, message: Message) -> None:
            self._events.put((host.name, link, message))

        link = self._transport.link(host, self._run_id, hear)
        self._all.append((host.name, link))
        number = len(self._all)
        self._transport.open(link, host)
        limits = self._cluster.limits
        link.send(
            {
                "do": "setup",
                # The number tells what an agent leaves behind from what its successor starts.
                "mark": f"{host.name}.{number}",
                "lease_secs": self.lease_secs,
                "stop_secs": limits.stop_secs,
                "alone": len(self._cluster.hosts) == 1,
                "successor": number > len(self._cluster.hosts),
                "containers": self._containers,
                "logs": self._transport.host_logs(self._run_id),
            }
        )
        return link


T = TypeVar("T")

_LOOK_SECS = 0.2


class Inbox(queue.Queue[T]):
    """A queue that makes its senders wait while it is full, and lets them go once it is closed.

    A host that sends more than the launcher can handle must wait for it: then its agent leaves out
    lines of its tasks, which are in the logs.

    Args:
      size: how many messages it holds, which may have a megabyte each.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._is_closed = False

    def put(self, item: T, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an item; without a timeout, drops it if the queue is full and closed."""
        if not block or timeout is not None:
            super().put(item, block, timeout)
            return
        while True:
            try:
                super().put(item, timeout=_LOOK_SECS)
                return
            except queue.Full:
                if self._is_closed:
                    return

    def close(self) -> None:
        """Says that nobody reads the queue any more."""
        self._is_closed = True
