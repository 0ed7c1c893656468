"""Starts an agent on each host with OpenSSH: one connection for each host.

The user's own ssh configuration decides about keys, ports, jump hosts and host keys. Where ssh
would ask at a terminal (for a password, say), it fails instead, so that the launcher never hangs.
Nothing of the user is lent to the hosts, whatever that configuration says: no ssh agent, display,
Kerberos ticket or port. Nothing of that configuration runs instead of the agent, or stays behind.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from launch.backends.tool_errors import CLOSED_EARLY, cause, last_line, meaning
from launch.cluster.model import Host
from launch.connect.transport import Transport

OPTIONS = (
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
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

OWN_ERROR = 255  # exit code


def target(host: Host) -> str:
    """Returns the host's name for ssh, as `USER@NAME` or `NAME`."""
    return f"{host.user}@{host.name}" if host.user else host.name


def _command(host: Host, command: Sequence[str], line: str) -> list[str]:
    return ["ssh", "-T", *OPTIONS, "--", target(host), line]


def own_error(host: Host, code: int, errors: str) -> Optional[str]:
    """Returns what an error of ssh itself means, and the way out; None if it is none, or unknown.

    Other exit codes than 255 are those of the command on the host.
    """
    if code != OWN_ERROR:
        return None
    return meaning("ssh", errors, name=host.name, target=target(host))


def _explain(host: Host, code: int, errors: str) -> str:
    last = last_line(errors, "the connection ended")
    known = own_error(host, code, errors)
    if code != OWN_ERROR:
        known = meaning("login shell", errors, python=host.agent_python)
    return known or f"{last} (ssh exit code {code})"


def _is_busy(host: Host, code: int, errors: str) -> bool:
    return code == OWN_ERROR and cause("ssh", errors) == CLOSED_EARLY


def _log_path(log: Path, run_id: str) -> str:
    return f"~/.local/state/cifar10-launch/hosts/{run_id}/{log.name}"


TRANSPORT = Transport(_command, _explain, _log_path, keeps_logs=False, is_busy=_is_busy)
