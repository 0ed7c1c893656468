"""Every host runs an agent that OpenSSH starts: one connection a host.

The user's own ssh configuration decides about keys, ports, jumps and host keys; what it would ask
at a terminal is refused instead, so that nothing ever hangs.
"""

from collections.abc import Sequence
from pathlib import Path

from launch.cluster.model import Host
from launch.connect.transport import Transport

OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")

# What ssh says -> what it means, and the way out.
_REASONS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the known one; if that is right: ssh-keygen -R {name}",
    ),
    (
        "Host key verification failed",
        "its host key is not known yet; look at it once by hand: ssh {target}",
    ),
    ("Permission denied", "it does not let us in; a key must do: ssh-copy-id {target}"),
    ("Could not resolve hostname", "ssh does not know the name; try: ssh {target}"),
    ("Connection refused", "nothing answers at its ssh port; is sshd running?"),
    ("Connection timed out", "it does not answer; is it up, and reachable from here?"),
    ("No route to host", "there is no way to it; is it up, and on this network?"),
    ("python3: not found", "it has no {python} on PATH; name one with `agent_python:`"),
    ("command not found", "it has no {python} on PATH; name one with `agent_python:`"),
    ("needs Python 3.9", "its {python} is older than 3.9; name one with `agent_python:`"),
)


def target(host: Host) -> str:
    """The host as ssh takes it."""
    return f"{host.user}@{host.name}" if host.user else host.name


def _command(host: Host, command: Sequence[str], line: str) -> list[str]:
    return ["ssh", "-T", *OPTIONS, "--", target(host), line]


def _explain(host: Host, code: int, errors: str) -> str:
    for words, meaning in _REASONS:
        if words in errors:
            return meaning.format(name=host.name, target=target(host), python=host.agent_python)
    last = errors.splitlines()[-1] if errors else "the connection ended"
    return f"{last} (ssh exit code {code})"


def _log_path(log: Path, run_id: str) -> str:
    return f"~/.local/state/cifar10-launch/hosts/{run_id}/{log.name}"


TRANSPORT = Transport(_command, _explain, _log_path, keeps_logs=False)
