"""From a cluster to its tasks: who runs where, on which port and devices, with which TF_CONFIG."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from launch.cluster.model import LEADS, Cluster, Host
from launch.cluster.ports import allot
from launch.errors import LaunchError

SCRIPT = "cifar10_main.py"
FREE = "free"  # stands for a port that is found when the job starts

# Ports are given out in this order, and so are GPUs and cores; an evaluator has no port.
_TRAINERS = (*LEADS, "worker", "evaluator")


@dataclass(frozen=True)
class Devices:
    """What a task may compute on.

    Attributes:
      gpus: the numbers of its GPUs; () is none, None is as the host has them.
      share: (i, n): the i-th of n equal parts of the host's cores, and of its GPUs where `gpus` is
        None; None is all of them.
    """

    gpus: Optional[tuple[int, ...]] = None
    share: Optional[tuple[int, int]] = None

    def words(self) -> str:
        """Describes them for people."""
        cores = f"part {self.share[0] + 1} of {self.share[1]} of the cores" if self.share else ""
        if self.gpus is None:
            gpus = "the same part of the GPUs" if self.share else "all GPUs"
        else:
            gpus = f"GPU {','.join(map(str, self.gpus))}" if self.gpus else "no GPU"
        return f"{cores or 'all cores'}, {gpus}"


@dataclass(frozen=True)
class Task:
    """One process of the cluster.

    Attributes:
      port: where it listens; None for an evaluator, and while it is still to be found.
      tf_config: the JSON that it gets as TF_CONFIG.
      argv: its command line, to run in `host.workdir`.
    """

    task_type: str
    index: int
    host: Host
    port: Optional[int]
    devices: Devices
    tf_config: str
    argv: tuple[str, ...]

    @property
    def name(self) -> str:
        """`worker/0`."""
        return f"{self.task_type}/{self.index}"

    @property
    def is_lead(self) -> bool:
        """Whether the job is over when it ends."""
        return self.task_type in LEADS


@dataclass(frozen=True)
class Job:
    """A cluster, the training's arguments and the tasks that come of them."""

    cluster: Cluster
    arguments: tuple[str, ...]
    tasks: tuple[Task, ...]

    def on(self, host: Host) -> list[Task]:
        """The tasks of one host."""
        return [task for task in self.tasks if task.host.name == host.name]

    def folder(self, name: str) -> str:
        """Returns the data or output folder that the arguments choose.

        A relative path is relative to `workdir`.

        Args:
          name: `data` or `output`.
        """
        chosen = name
        for argument, following in zip(self.arguments, [*self.arguments[1:], ""]):
            flag, equals, value = argument.partition("=")
            if flag.replace("_", "-") == f"--{name}-dir":
                chosen = value if equals else following
        return chosen


_Place = tuple[str, int, Host, Optional[int], Devices]  # the first fields of a Task


def make_job(
    cluster: Cluster,
    arguments: Sequence[str] = (),
    free_ports: Optional[Mapping[str, Sequence[int]]] = None,
) -> Job:
    """Works out every task.

    Args:
      cluster: the description.
      arguments: the training's own, the same for every task.
      free_ports: host name -> ports found free there, for `ports: free`; without them such ports
        stand as `free` in TF_CONFIG.

    Raises:
      LaunchError: a host has too few ports or GPUs for its tasks.
    """
    counts: Counter[str] = Counter()
    places: list[_Place] = []
    spec: dict[str, list[str]] = {}
    for host in cluster.hosts:
        found = None if free_ports is None else free_ports[host.name]
        for task_type, port, devices in _tasks_of(cluster, host, found):
            places.append((task_type, counts[task_type], host, port, devices))
            counts[task_type] += 1
            if task_type != "evaluator":
                spec.setdefault(task_type, []).append(_dial(host.address, port))
    spec = {task_type: spec[task_type] for task_type in sorted(spec)}
    tasks = []
    for task_type, index, host, port, devices in places:
        task = {"type": task_type, "index": index}
        tf_config = json.dumps({"cluster": spec, "task": task, "environment": "cloud"})
        argv = (host.python, SCRIPT, *arguments)
        tasks.append(Task(task_type, index, host, port, devices, tf_config, argv))
    return Job(cluster, tuple(arguments), tuple(tasks))


def _dial(address: str, port: Optional[int]) -> str:
    bracketed = f"[{address}]" if ":" in address else address
    return f"{bracketed}:{FREE if port is None else port}"


def _tasks_of(
    cluster: Cluster, host: Host, found: Optional[Sequence[int]]
) -> Iterator[tuple[str, Optional[int], Devices]]:
    """Yields type, port and devices of each task of one host: trainers, then ps."""
    trainers = [role for role in _TRAINERS for _ in range(host.count(role))]
    trainer_ports, ps_ports = allot(cluster.ports, host, found)
    listening = iter(trainer_ports)
    for i, task_type in enumerate(trainers):
        port = None if task_type == "evaluator" else next(listening)
        yield task_type, port, _devices(cluster, host, i, len(trainers))
    for port in ps_ports:
        yield "ps", port, Devices(gpus=())


def _devices(cluster: Cluster, host: Host, i: int, trainers: int) -> Devices:
    share = (i, trainers) if trainers > 1 else None
    each = cluster.gpus_per_task
    if each is None:
        return Devices(None if host.gpus is None or share else tuple(range(host.gpus)), share)
    if host.gpus is not None and trainers * each > host.gpus:
        raise LaunchError(
            f"{host.name} has {host.gpus} GPUs, but {trainers} trainers of {each} each need "
            f"{trainers * each}; lower gpus_per_task or the counts in its roles"
        )
    return Devices(tuple(range(i * each, (i + 1) * each)), share)
