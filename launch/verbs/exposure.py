"""Finds tasks that listen where the internet may reach them.

TensorFlow's servers listen on all addresses of their host, and ask nobody who they are: whoever
reaches one can read and change the weights, and run TensorFlow's operations there.
"""

import contextlib
import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from launch.cluster.model import Host
from launch.cluster.tasks import Job
from launch.verbs.facts import Facts

_RISK = "TensorFlow's servers admit whoever reaches them"
_WAY_OUT = (
    "admit only the cluster's hosts there with a firewall (`ports:` sets the ports), or use hosts "
    "with private addresses alone"
)
_RESOLVE_SECS = 5.0  # for all names together
# Names; a resolver opens a descriptor or two for each. All may hang but one, which has its turn.
_AT_ONCE = 256


def warnings(job: Job, facts: Mapping[str, Facts]) -> list[str]:
    """Returns a message for each host whose tasks the internet may reach.

    Whether a firewall is in the way cannot be known, so these are no problems.

    Args:
      job: the job that is to run.
      facts: host name -> the facts about that host.
    """
    serving = [task for task in job.tasks if task.task_type != "evaluator"]
    if len(serving) < 2:
        return []  # a trainer alone starts no server
    found = []
    hosts = [one for one in job.cluster.hosts if any(task in serving for task in job.on(one))]
    resolved = _resolved(list(dict.fromkeys(host.address for host in hosts)))
    for host in hosts:
        public = list(facts[host.name].found.get("public", ()))
        public += [one for one in resolved.get(host.address, ()) if one not in public]
        if public:
            found.append(
                f"{host.name}: {', '.join(public)} may be reached from the internet, on "
                f"{_ports(job, host)}; {_RISK}: {_WAY_OUT}"
            )
        elif host.address not in resolved:
            found.append(
                f"{host.name}: {host.address} did not resolve within {_RESOLVE_SECS:g} s, so the "
                "internet may reach it or not; see whether this machine's name server answers"
            )
    return found


def _resolved(names: Sequence[str]) -> dict[str, list[str]]:
    """Returns the public addresses of each name at which tasks connect to others.

    The names are resolved side by side. One whose name server does not answer in time is left out.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                name = waiting.get_nowait()
                answers.put((name, _public(name)))

    for _ in range(min(_AT_ONCE, len(names))):
        # Nothing can interrupt a resolver; the end of this process does not wait for a daemon.
        threading.Thread(target=work, daemon=True).start()
    found: dict[str, list[str]] = {}
    deadline = time.monotonic() + _RESOLVE_SECS
    with contextlib.suppress(queue.Empty):
        while len(found) < len(names):
            name, addresses = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            found[name] = addresses
    return found


def _public(address: str) -> list[str]:
    """Returns the public addresses of a host at which other tasks connect to its own."""
    try:
        rows = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # the check tells of names that do not resolve
    found = {str(row[4][0]).partition("%")[0] for row in rows}
    return sorted(one for one in found if ipaddress.ip_address(one).is_global)


def _ports(job: Job, host: Host) -> str:
    ports = [
        str(task.port)
        for task in job.on(host)
        if task.task_type != "evaluator" and task.port is not None
    ]
    if not ports:
        return "the free ports that its tasks choose"
    return f"port{'s' * (len(ports) > 1)} {', '.join(ports)}"
