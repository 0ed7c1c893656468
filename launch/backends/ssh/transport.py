"""Starts an agent on each host with OpenSSH: one connection for each host.

The user's own ssh configuration decides about keys, ports, jump hosts and host keys. Where ssh
would ask at a terminal (for a password, say), it fails instead, so that the launcher never hangs.
Nothing of the user is lent to the hosts, whatever that configuration says: no ssh agent, display,
Kerberos ticket or port. Nothing of that configuration runs instead of the agent, or stays behind.
"""

from collections.abc import Sequence
from pathlib import Path

from launch.backends.tool_errors import last_line, meaning
from launch.cluster.model import Host
from launch.connect.transport import Transport

_OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=15",  # A connection is given up after a minute without an answer.
    "-o",
    "ServerAliveCountMax=4",
    "-a",  # no agent
    "-x",  # no X11
    "-k",  # no credentials of GSSAPI
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "Tunnel=no",
    "-o",
    "ControlMaster=no",  # it would hold standard error open after its command
    "-o",
    "RemoteCommand=none",  # ssh refuses ours beside it
)

_OWN_ERROR = 255  # exit code; others are those of the command on the host


def _target(host: Host) -> str:
    """Returns the host's name for ssh, as `USER@NAME` or `NAME`."""
    return f"{host.user}@{host.name}" if host.user else host.name


def _command(host: Host, command: Sequence[str], line: str) -> list[str]:
    return ["ssh", "-T", *_OPTIONS, "--", _target(host), line]


def _explain(host: Host, code: int, errors: str) -> str:
    last = last_line(errors, "the connection ended")
    tool = "ssh" if code == _OWN_ERROR else "login shell"
    facts = {"name": host.name, "target": _target(host), "python": host.agent_python}
    known = meaning(tool, errors, **facts)
    return known or f"{last} (ssh exit code {code})"


def _log_path(log: Path, run_id: str) -> str:
    return f"~/.local/state/cifar10-launch/hosts/{run_id}/{log.name}"


TRANSPORT = Transport(_command, _explain, _log_path, keeps_logs=False)
