"""The ssh backend: each task is a process on its host, under an agent that OpenSSH starts.

The user's own ssh configuration decides about keys, ports, jump hosts and host keys. Where ssh
would ask at a terminal (for a password, say), it fails instead, so that the launcher never hangs.
Nothing of the user is lent to the hosts, whatever that configuration says: no ssh agent, display,
Kerberos ticket or port. Nothing of that configuration runs instead of the agent, or stays behind.
"""

import math
from collections.abc import Sequence

from launch.backends.base import Backend
from launch.cluster.model import Host
from launch.connect.link import Transport
from launch.connect.tools import PYTHON, Meanings, last_line, meaning

_FLAGS = ("-T", "-a", "-x", "-k")  # no terminal, no agent, no X11, no credentials of GSSAPI
_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveCountMax=4",
    "ClearAllForwardings=yes",
    "Tunnel=no",
    "ControlMaster=no",  # it would hold standard error open after its command
    "RemoteCommand=none",  # ssh refuses ours beside it
)
_OWN_ERROR = 255  # exit code; others are those of the command on the host
_MEANINGS: Meanings = (
    ("REMOTE HOST ID", "its host key has changed; if that is right: ssh-keygen -R {name}"),
    ("Host key verification", "its host key is not known; look at it once: ssh {target}"),
    (r"Permission denied \([a-z]", "login refused; install your key: ssh-copy-id {target}"),
    (".*Could not resolve hostname.*", "{said}; try: ssh {target}"),
    ("Connection (refused|timed out)|No route", "it does not answer; is it up, and in reach?"),
    # Last: a jump host that cannot be reached is a nearer cause.
    ("(kex|ssh)_exchange_identification", "closed before the login; raise MaxStartups of its sshd"),
)


def _command(host: Host, command: Sequence[str], line: str, lease_secs: float) -> list[str]:
    # ssh gives a silent connection up after two leases: the launcher and the agent decide before.
    options = [*_OPTIONS, f"ServerAliveInterval={math.ceil(lease_secs / 2)}"]
    return ["ssh", *_FLAGS, *(f"-o{option}" for option in options), "--", host.login, line]


def _explain(host: Host, code: int, errors: str) -> str:
    meanings = _MEANINGS if code == _OWN_ERROR else PYTHON
    facts = {"name": host.name, "target": host.login, "python": host.agent_python}
    last = f"{last_line(errors, 'the connection ended')} (ssh exit code {code})"
    return meaning(meanings, errors, **facts) or last


TRANSPORT = Transport(_command, _explain)


class Ssh(Backend):
    """Runs tasks as processes on other machines."""

    name = "ssh"
    transport = TRANSPORT
    is_checked_first = True
