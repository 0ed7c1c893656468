"""Makes clusters without a file: from a list of hosts, or from the number of tasks."""

import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from cifar10_program import IS_INSTALLED
from launch.cluster.model import FREE_PORTS, LEADS, USER_NAME, Cluster, Host, Kind, host_name
from launch.errors import LaunchError

# The folder that holds this package, and in a checkout cifar10_main.py.
ROOT = Path(__file__).resolve().parents[2]


def code_folder() -> str:
    """Returns the current folder if it holds cifar10_main.py, else `checkout`.

    Raises:
      LaunchError: the current folder has been removed.
    """
    here = _current_folder()
    return here if os.path.exists(os.path.join(here, "cifar10_main.py")) else checkout()


def checkout() -> str:
    """Returns this checkout; the current folder if there is none, since the package is installed.

    The folders of records and output are relative to it.

    Raises:
      LaunchError: it would be the current folder, which has been removed.
    """
    return _current_folder() if IS_INSTALLED else str(ROOT)


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise LaunchError("the current folder has been removed; change to another one") from None


def is_this_machine(name: str) -> bool:
    """Whether a host name or address is this machine's; does not ask a name server."""
    if name in ("localhost", socket.gethostname()):
        return True
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        socket.inet_pton(family, name)
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((name, 9))  # UDP: sends nothing, only selects the local address
            return bool(asked.getsockname()[0] == name)
    except OSError:  # not an address, or not reachable
        return False


def nameless_host(python: Optional[str] = None, workdir: Optional[str] = None) -> Host:
    """Returns a host without a name and tasks, as the base of all hosts of a cluster.

    Args:
      python: the Python that runs the training on the hosts; by default, `default_python()`.
      workdir: the folder with the code on the hosts; by default, `code_folder()`.
    """
    return Host("", "", (), workdir or code_folder(), python=python or default_python())


def named(base: Host, word: str) -> Host:
    """Returns a copy of `base` with the name, and the user if given, of NAME or USER@NAME.

    Raises:
      LaunchError: `word` has another form, or a port.
    """
    user, at, name = word.rpartition("@")
    if at and not re.fullmatch(USER_NAME, user):
        raise LaunchError(f"{user!r} is not a user: it must be a name of letters, digits, . _ -")
    name = host_name(name)
    return replace(base, name=name, address=name, user=user or base.user)


def from_hosts(
    names: str, python: Optional[str] = None, workdir: Optional[str] = None, evaluator: bool = False
) -> Cluster:
    """Makes a cluster with a master on the first host, a worker on each other, and a ps on each.

    Args:
      names: host names or addresses, with or without `user@`, separated by commas.
      python: the same as for `nameless_host`.
      workdir: the same as for `nameless_host`.
      evaluator: whether to add an evaluator on the last host; the master is then called chief.
    """
    base, words = nameless_host(python, workdir), names.split(",")
    hosts = []
    for position, word in enumerate(words):
        lead = "chief" if evaluator else "master"
        roles = [("worker" if position else lead, 1), ("ps", 1)]
        if evaluator and position == len(words) - 1:
            roles.append(("evaluator", 1))
        hosts.append(replace(named(base, word.strip()), roles=tuple(roles)))
    return Cluster(hosts=tuple(hosts))


def on_this_machine(
    workers: int,
    ps: int,
    python: Optional[str] = None,
    workdir: Optional[str] = None,
    evaluator: bool = False,
) -> Cluster:
    """Makes a cluster of processes on this machine, with free ports.

    Args:
      workers: the number of workers besides the master.
      ps: the number of parameter servers.
      python: the Python that runs the training; by default, the launcher's own.
      workdir: the folder with the code; by default, `code_folder()`.
      evaluator: whether to add an evaluator; the master is then called chief.
    """
    roles = [("chief" if evaluator else "master", 1), ("worker", workers), ("ps", ps)]
    if evaluator:
        roles.append(("evaluator", 1))
    host = Host(
        name="localhost",
        address="127.0.0.1",
        roles=tuple((role, count) for role, count in roles if count),
        python=python or sys.executable,
        workdir=os.path.abspath(workdir or code_folder()),
        agent_python=sys.executable,
    )
    return Cluster(hosts=(host,), backend="local", ports=FREE_PORTS, source="--on local")


def on_chosen_hosts(
    kind: Kind,
    counts: Mapping[str, int],
    num_hosts: Optional[int] = None,
    python: Optional[str] = None,
    workdir: Optional[str] = None,
) -> Cluster:
    """Makes a cluster on hosts that a scheduler will choose; until then they are `node0`, `node1`.

    Args:
      kind: a backend that chooses the hosts.
      counts: task type -> the number of tasks.
      num_hosts: the same as for `chosen_hosts`.
      python: the same as for `nameless_host`.
      workdir: the same as for `nameless_host`.

    Raises:
      LaunchError: there are more hosts than tasks, or `num_hosts` is given where each task has its
        own host.
    """
    return Cluster(
        hosts=chosen_hosts(kind, counts, num_hosts, nameless_host(python, workdir)),
        backend=kind.name,
        ports=kind.default_ports,
        source=f"--on {kind.name}",
    )


def chosen_hosts(
    kind: Kind, counts: Mapping[str, int], num_hosts: Optional[int], base: Host
) -> tuple[Host, ...]:
    """Distributes tasks over hosts in turns: first the trainers, then the ps and the evaluator.

    Args:
      kind: a backend that chooses the hosts.
      counts: task type -> the number of tasks.
      num_hosts: the number of hosts; by default, one for each trainer, which the ps share. It must
        be None for a backend that gives each task its own host.
      base: a host with the settings that all hosts share.

    Raises:
      LaunchError: there are more hosts than tasks, or `num_hosts` is given where each task has its
        own host.
    """
    trainers = _repeated(counts, (*LEADS, "worker"))
    others = _repeated(counts, ("ps", "evaluator"))
    num_tasks = len(trainers) + len(others)
    if kind.host_per_task:
        if num_hosts is not None:
            raise LaunchError(
                f"{kind.name} chooses nodes itself, a pod for each task; leave them out"
            )
        num_hosts = num_tasks
    elif num_hosts is None:
        num_hosts = max(1, len(trainers))
    if num_hosts > num_tasks:
        raise LaunchError(
            f"{num_hosts} nodes are too many for {num_tasks} tasks; use at most {num_tasks}"
        )
    # If there are more hosts than trainers, the first ps goes to a host without a trainer.
    first = len(trainers) if len(trainers) < num_hosts else 0
    roles = [Counter[str]() for _ in range(num_hosts)]
    for position, task_type in [*enumerate(trainers), *enumerate(others, first)]:
        roles[position % num_hosts][task_type] += 1
    return tuple(
        replace(base, name=f"node{i}", address=f"node{i}", roles=tuple(of_one.items()))
        for i, of_one in enumerate(roles)
    )


def _repeated(counts: Mapping[str, int], task_types: Sequence[str]) -> list[str]:
    """Returns one entry, the task type, for each task of these types."""
    return [task_type for task_type in task_types for _ in range(counts.get(task_type, 0))]


def default_python() -> str:
    """Returns the Python that runs the training if nothing else is said.

    It is this checkout's .venv/bin/python if the launcher runs in that venv, and this Python if the
    package is installed, else python3.
    """
    if IS_INSTALLED:
        return sys.executable
    return ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python3"
