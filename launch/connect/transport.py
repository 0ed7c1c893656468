"""How a backend reaches the agents on its hosts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect.link import Link, agent_command, remote_command
from launch.errors import HostError

OPEN_SECS = 30.0


@dataclass(frozen=True)
class Transport:
    """Describes how a backend reaches an agent.

    Attributes:
      command: a function of (host, command that starts an agent, the same command as a line for a
        login shell) that returns the command to run on this machine.
      explain: a function of (host, exit code, standard error) that returns why the connection
        ended, and the way out.
    """

    command: Callable[[Host, Sequence[str], str], list[str]]
    explain: Callable[[Host, int, str], str]

    def link(self, host: Host, run_id: str, hear: Callable[[Link, Message], None]) -> Link:
        """Returns a connection to an agent on a host; `open` opens it."""
        command = self.command(
            host,
            agent_command(host.agent_python, run_id),
            remote_command(host.agent_python, run_id),
        )
        return Link(command, partial(self.explain, host), hear)

    def open(self, link: Link, host: Host) -> None:
        """Opens a connection to an agent on a host.

        Raises:
          HostError: the agent did not start; the message begins with the host's name.
        """
        try:
            link.open(OPEN_SECS)
        except HostError as error:
            raise HostError(f"{host.name}: {error}") from None
