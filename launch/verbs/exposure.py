"""Finds tasks that listen where the internet may reach them.

TensorFlow's servers listen on all addresses of their host, and ask nobody who they are: whoever
reaches one can read and change the weights, and run TensorFlow's operations there.
"""

import ipaddress
import socket
from collections.abc import Mapping

from launch.cluster.model import Host
from launch.cluster.tasks import Job
from launch.verbs.facts import Facts

_RISK = "TensorFlow's servers admit whoever reaches them"
_WAY_OUT = (
    "admit only the cluster's hosts there with a firewall (`ports:` sets the ports), or use hosts "
    "with private addresses alone"
)


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
    for host in job.cluster.hosts:
        if not any(task in serving for task in job.on(host)):
            continue
        public = list(facts[host.name].found.get("public", ()))
        public += [one for one in _of_cluster(host) if one not in public]
        if public:
            found.append(
                f"{host.name}: {', '.join(public)} may be reached from the internet, on "
                f"{_ports(job, host)}; {_RISK}: {_WAY_OUT}"
            )
    return found


def _of_cluster(host: Host) -> list[str]:
    """Returns the public addresses at which other tasks connect to the host's."""
    try:
        rows = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
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
