"""How a backend reaches the agents on its hosts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect import bootstrap
from launch.connect.link import Link
from launch.errors import HostError

OPEN_SECS = 30.0


@dataclass(frozen=True)
class Transport:
    """Describes how a backend reaches an agent.

    Attributes:
      command: (host, the command that starts an agent, the same as a line for a login shell) ->
        the command to run here.
      explain: (host, exit code, standard error) -> why the connection ended, and the way out.
      log_path: (path of a task's log here, run's id) -> the agent's own log of it, on its host.
      keeps_logs: whether those logs lie in the run's folder here.
    """

    command: Callable[[Host, Sequence[str], str], list[str]]
    explain: Callable[[Host, int, str], str]
    log_path: Callable[[Path, str], str]
    keeps_logs: bool

    def link(self, host: Host, run_id: str, hear: Callable[[Link, Message], None]) -> Link:
        """Returns a connection to an agent on a host, which is still to be opened."""
        command = self.command(
            host,
            bootstrap.command(host.agent_python, run_id),
            bootstrap.remote_command(host.agent_python, run_id),
        )
        return Link(command, lambda code, errors: self.explain(host, code, errors), hear)

    def open(self, link: Link, host: Host) -> None:
        """Starts the agent; HostError, with the host's name, if that does not work."""
        try:
            link.open(OPEN_SECS)
        except HostError as error:
            raise HostError(f"{host.name}: {error}") from None
