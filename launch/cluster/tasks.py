"""Works out the tasks of a cluster: the host, port, devices and TF_CONFIG of each."""

import json
import posixpath
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from cifar10_program import IS_INSTALLED
from launch.cluster.model import LEADS, Cluster, Host, Ports
from launch.cluster.training_files import place
from launch.errors import LaunchError

SCRIPT = "cifar10_main.py"
PACKAGES = ("cifar10", "cifar10_program", "data_prep")
CODE = (SCRIPT, *PACKAGES)  # what a task imports from a checkout
# What follows Python in a task's command. Without a checkout here, the hosts have the package, too.
PROGRAM = ("-m", "cifar10") if IS_INSTALLED else (SCRIPT,)
FREE = "free"  # stands in TF_CONFIG for a port that is chosen when the job starts

# Ports, GPUs and cores are assigned in this order; an evaluator has no port.
_TRAINERS = (*LEADS, "worker", "evaluator")


@dataclass(frozen=True)
class Devices:
    """The GPUs and cores that a task may use.

    Attributes:
      gpus: the numbers of the GPUs, () for none; None leaves the choice to `share`.
      share: (i, n) for part i, counted from 0, of n equal parts of the host's cores, and of its
        GPUs if `gpus` is None; None for all of them.
    """

    gpus: Optional[tuple[int, ...]] = None
    share: Optional[tuple[int, int]] = None

    def words(self) -> str:
        """Describes the devices for people."""
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
      port: the port on which the task listens; None for an evaluator, and for a free port that is
        not known yet.
      tf_config: the value of TF_CONFIG, as JSON.
      argv: the command line, which runs in `host.workdir`.
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
        """The task type and index, such as `worker/0`."""
        return f"{self.task_type}/{self.index}"

    @property
    def is_lead(self) -> bool:
        """Whether this is the master or chief, whose success ends the job."""
        return self.task_type in LEADS


@dataclass(frozen=True)
class Job:
    """A cluster, the training's arguments, and the tasks that follow from both."""

    cluster: Cluster
    arguments: tuple[str, ...]
    tasks: tuple[Task, ...]

    def on(self, host: Host) -> list[Task]:
        """Returns the tasks of one host."""
        return [task for task in self.tasks if task.host.name == host.name]

    def folder(self, name: str) -> str:
        """Returns the data or output folder that the arguments choose.

        As in the training, a relative path starts from `--work-dir`. If that is missing or relative
        itself, the result is relative to the host's `workdir`.

        Args:
          name: `data` or `output`, which is also the default folder.
        """
        chosen = place(self.arguments, f"{name}_dir")
        folder = name if chosen is None else chosen
        start = place(self.arguments, "work_dir")
        if start is None or "://" in folder or folder.startswith("~"):
            return folder
        return posixpath.join(start, folder)


_Place = tuple[str, int, Host, Optional[int], Devices]  # the first fields of a Task


def make_job(
    cluster: Cluster,
    arguments: Sequence[str] = (),
    free_ports: Optional[Mapping[str, Sequence[int]]] = None,
) -> Job:
    """Works out the tasks of a cluster.

    Args:
      cluster: the cluster.
      arguments: the arguments of the training program, the same for every task.
      free_ports: host name -> the free ports found there, for `ports: free`; if None, `free` stands
        in TF_CONFIG instead of such ports.

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
        argv = (host.python, *PROGRAM, *arguments)
        tasks.append(Task(task_type, index, host, port, devices, tf_config, argv))
    return Job(cluster, tuple(arguments), tuple(tasks))


def _dial(address: str, port: Optional[int]) -> str:
    bracketed = f"[{address}]" if ":" in address else address
    return f"{bracketed}:{FREE if port is None else port}"


def _tasks_of(
    cluster: Cluster, host: Host, found: Optional[Sequence[int]]
) -> Iterator[tuple[str, Optional[int], Devices]]:
    """Yields the type, port and devices of each task of one host: first trainers, then ps."""
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
            f"{host.name} has {host.gpus} GPUs, but {trainers} trainers with {each} each need "
            f"{trainers * each}; lower gpus_per_task or the counts in its roles"
        )
    return Devices(tuple(range(i * each, (i + 1) * each)), share)


TOKEN = "CIFAR10_JOB_TOKEN"
_BYTES = 16


def with_token(job: Job) -> Job:
    """Returns the job with a new token among its variables, unless the user gives one."""
    cluster = job.cluster
    if TOKEN in (*dict(cluster.environment), *cluster.passed):
        return job
    variables = (*cluster.environment, (TOKEN, secrets.token_hex(_BYTES)))
    return replace(job, cluster=replace(cluster, environment=variables))


Numbers = Sequence[Optional[int]]


def num_ports(host: Host) -> int:
    """Returns the number of ports on which a host's tasks listen; an evaluator needs none."""
    return host.count(*LEADS, "worker", "ps")


def allot(rule: Ports, host: Host, found: Optional[Sequence[int]]) -> tuple[Numbers, Numbers]:
    """Returns the ports of a host's trainers (master, chief and workers), and those of its ps.

    Args:
      rule: the ports that the description gives: a first one, a range, or free ones.
      host: the host whose tasks need ports.
      found: the free ports found on the host, for a rule of free ports; if None, every port in the
        result is None.

    Raises:
      LaunchError: there are too few ports.
    """
    trainers, ps = host.count(*LEADS, "worker"), host.count("ps")
    if rule.low is None:
        numbers: Numbers = [None] * (trainers + ps) if found is None else found
    else:
        last = rule.high or rule.low + trainers + ps + 1
        if last > 65_535 or last - rule.low + 1 < trainers + ps:
            raise LaunchError(
                f"ports {rule.low}-{rule.high or 65_535} are too few for the {trainers + ps} tasks "
                f"of {host.name}; widen the range, or start lower"
            )
        numbers = range(rule.low, last + 1)
    if rule.low is not None and rule.high is None:
        # The first trainer and the first ps have the same ports on every host; others follow.
        first, second, *rest = numbers
        others = max(trainers - 1, 0)
        return [first, *rest[:others]][:trainers], [second, *rest[others:]][:ps]
    return numbers[:trainers], numbers[trainers : trainers + ps]
