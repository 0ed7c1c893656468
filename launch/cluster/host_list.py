"""Makes clusters without a file: from a list of hosts, or from the number of tasks."""

import contextlib
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Optional, Union

from cifar10_program import IS_INSTALLED
from launch.cluster.model import CHIEFS, FREE_PORTS, MAX_TASKS, BackendFacts, Cluster, Host
from launch.errors import LaunchError

# The folder that holds this package, and in a checkout cifar10_main.py.
ROOT = Path(__file__).resolve().parents[2]


def code_folder() -> str:
    """Returns the folder with the code: the current one if it holds cifar10_main.py, else ROOT.

    If the package is installed, there is no checkout: it is the current folder, from which the
    folders of records and output are named.

    Raises:
      LaunchError: the current folder has been removed.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise LaunchError("the current folder has been removed; change to another one") from None
    is_code = IS_INSTALLED or os.path.exists(os.path.join(here, "cifar10_main.py"))
    return here if is_code else str(ROOT)


SETUP_PYTHON = ".venv/bin/python"  # of the venv that `setup` and `make venv` make


def default_python() -> str:
    """Returns the Python that runs the training if nothing else is said.

    It is this checkout's .venv/bin/python if the launcher runs in that venv, and this Python if the
    package is installed, else python3.
    """
    if IS_INSTALLED:
        return sys.executable
    return SETUP_PYTHON if Path(sys.prefix) == ROOT / ".venv" else "python3"


def is_this_machine(name: str) -> bool:
    """Whether a host name or address is this machine's; does not ask a name server."""
    if name in ("localhost", socket.gethostname()):
        return True
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    # Not an address, or not reachable.
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
        socket.inet_pton(family, name)
        asked.connect((name, 9))  # UDP: sends nothing, only selects the local address
        return bool(asked.getsockname()[0] == name)
    return False


def nameless_host(python: Optional[str] = None, workdir: Optional[str] = None) -> Host:
    """Returns a host without a name and tasks, as the base of all hosts of a cluster.

    Args:
      python: the Python that runs the training on the hosts; by default, `default_python()`.
      workdir: the folder with the code on the hosts; by default, `code_folder()`.
    """
    return Host("", "", (), workdir or code_folder(), python=python or default_python())


_RANGES = re.compile(r"\[([0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*)\]")


def expand(words: str) -> list[str]:
    """Returns the hosts of a list as Slurm writes it: `a,node[01-03,7]` -> a, node01, node02, ...

    Raises:
      LaunchError: a range has more than MAX_TASKS hosts.
    """
    names = [""]
    # Commas between hosts, not those within brackets.
    for word in re.split(r",(?![^\[\]]*\])", words):
        before, *rest = _RANGES.split(word.strip())
        found = [before]
        for ranges, after in zip(rest[::2], rest[1::2]):
            numbers = [number for part in ranges.split(",") for number in _numbers(part)]
            found = [f"{name}{number}{after}" for name in found for number in numbers]
            if len(found) > MAX_TASKS:
                raise LaunchError(
                    f"{word}: {len(found):,} hosts; a cluster has at most {MAX_TASKS:,}"
                )
        names += found
    return names[1:]


def _numbers(part: str) -> list[str]:
    """Returns the numbers of `07` or `07-12`, as wide as the first one."""
    first, _, last = part.partition("-")
    if int(last or first) < int(first):
        raise LaunchError(f"[{part}]: a range begins with its lowest number: [{last}-{first}]")
    end = min(int(last or first), int(first) + MAX_TASKS)
    return [str(number).zfill(len(first)) for number in range(int(first), end + 1)]


Counts = Mapping[str, int]  # task type -> the number of tasks


def counts_of(workers: int, ps: int, evaluator: bool = False) -> Counts:
    """Returns how many tasks of each type a job has; with an evaluator, its master is a chief."""
    counts = {"chief" if evaluator else "master": 1, "worker": workers, "ps": ps}
    return {**counts, "evaluator": int(evaluator)}


_HOST_LINE = re.compile(
    r"((?:[^\s:@]+@)?(?:\[[^\s\]]+\]|[^\s:]+))(?::(\d{1,4}))?((?:\s+(?:max[-_])?slots=\d{1,4})*)"
)


def read_hostfile(path: str) -> dict[str, int]:
    """Returns the hosts of a hostfile as MPI, Horovod and DeepSpeed have it: host -> its slots.

    Lines are `node0`, `node0 slots=4` or `node0:4`, with or without `user@`; `#` begins a comment.
    The slots of a host that is listed again are added.

    Raises:
      LaunchError: it cannot be read, or a line is no host; the message begins with `FILE:LINE:`.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise LaunchError(f"{path}: {reason}; --hostfile names a file of hosts") from None
    slots = Counter[str]()
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].strip()
        match = _HOST_LINE.fullmatch(words)
        if words and match is None:
            rule = "must be a host, such as `node0`, `node0 slots=4` or `node0:4`"
            raise LaunchError(f"{path}:{number}: {rule}, got {words!r}")
        if match is not None:
            given = re.search(r"\bslots=(\d+)", re.sub(r"max[-_]slots=\d+", "", match[3]))
            count = int(match[2] or (given[1] if given else 1))
            if not count:
                raise LaunchError(f"{path}:{number}: slots must be 1 or more, got {words!r}")
            slots.update(dict.fromkeys(expand(match[1]), count))
    if not slots:
        raise LaunchError(f"{path}: no hosts; write one on each line")
    return dict(slots)


def from_hosts(
    names: Union[str, Mapping[str, int]], evaluator: bool = False, **place: Optional[str]
) -> Cluster:
    """Makes a cluster with a master on the first host, a worker on each other, and a ps on each.

    Args:
      names: host names or addresses, with or without `user@`, separated by commas; see `expand`. Or
        host -> the number of its workers, of which the first host's first one is the master.
      evaluator: whether to add an evaluator on the last host; the master is then called chief.
      **place: `python` and `workdir`, as for `nameless_host`.
    """
    base = nameless_host(**place)
    slots = [(name, 1) for name in expand(names)] if isinstance(names, str) else names.items()
    hosts = [base.named(name) for name, _ in slots]
    roles = [{"worker": count, "ps": 1} for _, count in slots]
    roles[0] = {"chief" if evaluator else "master": 1, "worker": roles[0]["worker"] - 1, "ps": 1}
    roles[-1].update({"evaluator": 1} if evaluator else {})
    return Cluster(tuple(map(_with_roles, hosts, roles)))


def on_this_machine(
    workers: int, ps: int, evaluator: bool = False, **place: Optional[str]
) -> Cluster:
    """Makes a cluster of processes on this machine, with free ports.

    Args:
      workers: the number of workers besides the master.
      ps: the number of parameter servers.
      evaluator: whether to add an evaluator; the master is then called chief.
      **place: `python`, by default the launcher's own, and `workdir`, as for `nameless_host`.
    """
    base = nameless_host(**{**place, "python": place.get("python") or sys.executable})
    here = replace(base, name="localhost", address="127.0.0.1", agent_python=sys.executable)
    here = replace(here, workdir=os.path.abspath(base.workdir))
    hosts = (_with_roles(here, counts_of(workers, ps, evaluator)),)
    return Cluster(hosts, backend="local", ports=FREE_PORTS, source="--on local")


def _with_roles(host: Host, counts: Counts) -> Host:
    return replace(host, roles=tuple((role, count) for role, count in counts.items() if count))


def on_chosen_hosts(
    backend: BackendFacts, counts: Counts, num_hosts: Optional[int] = None, **place: Optional[str]
) -> Cluster:
    """Makes a cluster on hosts that a scheduler will choose; see `chosen_hosts`."""
    hosts = chosen_hosts(backend, counts, num_hosts, nameless_host(**place))
    ports, source = backend.default_ports, f"--on {backend.name}"
    return Cluster(hosts, backend=backend.name, ports=ports, source=source)


def chosen_hosts(
    backend: BackendFacts, counts: Counts, num_hosts: Optional[int], base: Host
) -> tuple[Host, ...]:
    """Distributes tasks over hosts in turns: first the trainers, then the ps and the evaluator.

    Until a scheduler has chosen the hosts, they are called `node0`, `node1` and so on.

    Args:
      backend: the backend, which chooses the hosts.
      counts: task type -> the number of tasks.
      num_hosts: the number of hosts; by default, one for each trainer, which the ps share. It must
        be None for a backend that gives each task its own host.
      base: a host with the settings that all hosts share.

    Raises:
      LaunchError: there are more hosts than tasks, or `num_hosts` is given where each task has its
        own host.
    """
    order = Counter({role: counts.get(role, 0) for role in (*CHIEFS, "worker", "ps", "evaluator")})
    types = list(order.elements())
    num_trainers = len(types) - order["ps"] - order["evaluator"]
    if num_hosts is not None and not backend.tasks_share_hosts:
        words = "chooses nodes itself, a pod for each task; leave them out"
        raise LaunchError(f"{backend.name} {words}")
    num_hosts = num_hosts or (max(1, num_trainers) if backend.tasks_share_hosts else len(types))
    if num_hosts > len(types):
        raise LaunchError(
            f"{num_hosts} nodes are too many for {len(types)} tasks; use at most {len(types)}"
        )
    roles = [Counter[str]() for _ in range(num_hosts)]
    for position, role in enumerate(types):
        roles[position % num_hosts][role] += 1
    return tuple(
        _with_roles(replace(base, name=f"node{i}", address=f"node{i}"), of_one)
        for i, of_one in enumerate(roles)
    )
