"""Opens, keeps alive and closes a run's connections, one to the agent on each host."""

import contextlib
import queue
import secrets
import threading
from collections.abc import Callable
from typing import Optional

from launch.agent.protocol import Message
from launch.cluster.model import Cluster, Host
from launch.connect.agent_client import everywhere
from launch.connect.link import Link, Transport, end
from launch.errors import HostError, LaunchError

_CLOSE_SECS = 4.0
_BEATS = 6  # in `lease_secs`
_LOOK_SECS = 0.2
_UNREAD = 64  # messages of hosts, which may have a megabyte each

# (host's name, connection, message). The message comes from the agent, from `Link` ("lost") or from
# `Connections.reopen` ("connected" or "unreachable").
Event = tuple[str, Optional[Link], Message]


class Connections(contextlib.AbstractContextManager["Connections"]):
    """The connections of a run, one to the agent on each host.

    Args:
      cluster: the hosts, and the limits for their agents.
      run_id: the id of the run.
      transport: how the launcher reaches the agents.
      containers: the arguments of `launch.agent.containers.Containers`; None for tasks that are
        plain processes.

    Attributes:
      events: what the hosts send. Where it is full, they must wait, and their agents leave out
        lines of their tasks that are too many.
      lease_secs: the seconds of silence after which an agent counts as lost.
      rejoin_secs: for how long a host that cannot be reached is tried again.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_id: str,
        transport: Transport,
        containers: Optional[Message] = None,
    ) -> None:
        self.lease_secs = cluster.limits.lease_secs
        self.rejoin_secs = cluster.limits.rejoin_secs
        self.events: queue.Queue[Event] = queue.Queue(_UNREAD + 2 * len(cluster.hosts))
        self._next_look = 0.0
        self._closed = threading.Event()
        self._run_id, self._transport = run_id, transport
        self._settings: Message = {
            "do": "begin",
            "lease_secs": self.lease_secs,
            "stop_secs": cluster.limits.stop_secs,
            "alone": len(cluster.hosts) == 1,
            "containers": containers,
        }
        self._hosts = {host.name: host for host in cluster.hosts}
        self._links: dict[str, Link] = {}
        self._all: list[Link] = []  # dropped ones included

    def open_all(
        self, is_stopped: Callable[[], bool], num_ports: Callable[[Host], int]
    ) -> Optional[dict[str, list[int]]]:
        """Connects to all hosts, which choose free ports.

        From now on, a thread sends heartbeats to the agents: they do not take this process for
        lost while it waits for a disk.

        Args:
          is_stopped: a function that returns whether to give up; called ten times a second.
          num_ports: a function that returns how many free ports a host is to choose.

        Returns:
          Host's name -> its ports; None if `is_stopped` became true meanwhile.

        Raises:
          HostError: a host cannot be reached, or has too few free ports; the message names each
            such host.
        """

        def open_one(host: Host) -> list[int]:
            count = num_ports(host)
            link, found = self._open(host, count)
            self._links[host.name] = link
            if len(set(found)) != count:
                few = f"found {len(set(found))} free ports for {count} tasks"
                hint = "end what uses so many, or name some with `ports:`"
                raise HostError(f"{host.name}: {few}; {hint}")
            return found

        def meanwhile() -> None:
            for link in list(self._all) if is_stopped() else ():
                link.kill()

        threading.Thread(target=self._keep_beating, daemon=True).start()
        answers = everywhere(list(self._hosts.values()), open_one, meanwhile=meanwhile)
        return None if is_stopped() else answers.of_all()

    def reopen(self, host_name: str, wait_secs: float = 0.0) -> None:
        """Connects to a host again in a thread; "connected" or "unreachable" comes as an event."""
        words = (host_name, wait_secs)
        threading.Thread(target=self._open_again, args=words, daemon=True).start()

    def _open_again(self, host_name: str, wait_secs: float) -> None:
        if self._closed.wait(wait_secs):
            return
        try:
            link, _ = self._open(self._hosts[host_name])
        except HostError as error:
            self.put((host_name, None, {"event": "unreachable", "reason": str(error)}))
        else:
            self.put((host_name, link, {"event": "connected"}))

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

    def silent(self, now: float) -> list[str]:
        """Looks for agents that were silent for `lease_secs`, unless it has looked just now.

        Args:
          now: the time, by time.monotonic.

        Returns:
          The names of their hosts.
        """
        if now < self._next_look:
            return []
        # If this process was suspended (Ctrl-Z) or waited for a disk, messages are still unread.
        was_away = now > self._next_look + 1 and self._next_look > 0
        self._next_look = now + self.lease_secs / _BEATS
        late = 0.0 if was_away else now - self.lease_secs
        return [name for name, link in self._links.items() if link.heard < late]

    def drop(self, host_name: str) -> None:
        """Ends a host's connection, and sends nothing more to the host."""
        self._links.pop(host_name).kill()

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        """Ends every agent that can be reached, and closes every connection.

        After an error of the launcher, it only closes them: the agents let their tasks save.
        """
        self._closed.set()
        if kind is None or issubclass(kind, LaunchError):
            end(self._all, _CLOSE_SECS)
        else:
            for link in self._all:
                link.hang_up()

    def _keep_beating(self) -> None:
        while not self._closed.wait(self.lease_secs / _BEATS):
            self.beat()

    def put(self, event: Event) -> None:
        """Waits for room among the events, until nobody reads them any more."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self.events.put(event, timeout=_LOOK_SECS)
                return

    def _open(self, host: Host, num_ports: int = 0) -> tuple[Link, list[int]]:
        """Connects to an agent on a host, which chooses free ports; HostError if that fails."""
        link = self._transport.link(
            host, self._run_id, lambda *event: self.put((host.name, *event)), self.lease_secs
        )
        self._all.append(link)
        # It tells what an agent leaves behind from what its successor starts.
        label = f"{host.name}.{secrets.token_hex(4)}"
        answer = link.ask({**self._settings, "ports": num_ports, "label": label})
        return link, answer["ports"]
