"""The ssh backend: each task is a process on its host, under an agent that OpenSSH starts."""

from collections.abc import Sequence

from launch.backends.agent_backend import AgentBackend
from launch.backends.ssh.sync import sync_code
from launch.backends.ssh.transport import TRANSPORT
from launch.cluster.model import Host


class Ssh(AgentBackend):
    """Runs tasks as processes on other machines."""

    transport = TRANSPORT

    def copy_code(self, hosts: Sequence[Host]) -> None:
        """Copies the code to the hosts."""
        sync_code(hosts)
