"""Works out the tasks of a cluster: the host, port, devices, TF_CONFIG and arguments of each.

`--config FILE` of the training's arguments names a file of the folder in which the launcher was
started. Tasks run in other folders, on other hosts or in containers. So the launcher passes its
settings as one JSON object, `--config={"train_batch_size": "64"}`. It knows no settings but the
places of the data and the output; the training program checks names and values.
"""

import json
import posixpath
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from cifar10_program import IS_INSTALLED
from launch.cluster.model import CHIEFS, FREE_PORTS, TRAINERS, Cluster, Host
from launch.errors import LaunchError

SCRIPT = "cifar10_main.py"
PACKAGES = ("cifar10", "cifar10_program", "data_prep")
CODE = (SCRIPT, *PACKAGES)  # what a task imports from a checkout
FREE = "free"  # stands in TF_CONFIG for a port that is chosen when the job starts


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
    def is_chief(self) -> bool:
        """Whether this is the master or chief, whose success ends the job."""
        return self.task_type in CHIEFS


@dataclass(frozen=True)
class Job:
    """A cluster, the training's arguments, and the tasks that follow from both."""

    cluster: Cluster
    arguments: tuple[str, ...]
    tasks: tuple[Task, ...]

    @property
    def chief(self) -> Task:
        """The master or chief."""
        return next(task for task in self.tasks if task.is_chief)

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
        folder = folder_of(self.arguments, f"{name}_dir") or name
        start = folder_of(self.arguments, "work_dir")
        if start is None or "://" in folder or folder.startswith("~"):
            return folder
        return posixpath.join(start, folder)


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
    tasks: list[Task] = []
    script = script_of(cluster)
    program = (script,) if script else ("-m", "cifar10")
    for host in cluster.hosts:
        found = None if free_ports is None else free_ports[host.name]
        for task_type, port, devices in _tasks_of(cluster, host, found):
            argv = (host.python, *program, *arguments)
            tasks.append(Task(task_type, counts[task_type], host, port, devices, "", argv))
            counts[task_type] += 1
    return Job(cluster, tuple(arguments), with_tf_config(tasks, _address))


def with_tf_config(tasks: Sequence[Task], address: Callable[[Task], str]) -> tuple[Task, ...]:
    """Returns all tasks of a job with their TF_CONFIG.

    Args:
      tasks: the tasks.
      address: returns a task's `HOST:PORT`, at which the others reach it.
    """
    spec: dict[str, list[str]] = {}
    for task in sorted(tasks, key=lambda task: task.task_type):
        if task.task_type != "evaluator":
            spec.setdefault(task.task_type, []).append(address(task))

    def tf_config(task: Task) -> str:
        place = {"type": task.task_type, "index": task.index}
        return json.dumps({"cluster": spec, "task": place, "environment": "cloud"})

    return tuple(replace(task, tf_config=tf_config(task)) for task in tasks)


def _address(task: Task) -> str:
    host = f"[{task.host.address}]" if ":" in task.host.address else task.host.address
    return f"{host}:{FREE if task.port is None else task.port}"


def script_of(cluster: Cluster) -> Optional[str]:
    """Returns the script that tasks run, from `workdir`; None for the installed package."""
    # Without a checkout here, the hosts have the package, too.
    return cluster.program or (None if IS_INSTALLED else SCRIPT)


def _tasks_of(
    cluster: Cluster, host: Host, found: Optional[Sequence[int]]
) -> Iterator[tuple[str, Optional[int], Devices]]:
    """Yields the type, port and devices of each task of one host: first trainers, then ps."""
    trainers = [role for role in TRAINERS for _ in range(host.count(role))]
    ports = iter(_ports(cluster.ports, host) if found is None else found)
    for i, task_type in enumerate(trainers):
        port = None if task_type == "evaluator" else next(ports)
        yield task_type, port, _devices(cluster, host, i, len(trainers))
    for port in ports:
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


def with_token(job: Job) -> Job:
    """Returns the job with a new token among its variables, unless the user gives one."""
    cluster = job.cluster
    if TOKEN in (*dict(cluster.environment), *cluster.pass_environment):
        return job
    variables = (*cluster.environment, (TOKEN, secrets.token_hex(16)))
    return replace(job, cluster=replace(cluster, environment=variables))


def num_ports(host: Host) -> int:
    """Returns the number of ports on which a host's tasks listen; an evaluator needs none."""
    return host.count(*CHIEFS, "worker", "ps")


def _ports(first: int, host: Host) -> list[Optional[int]]:
    """Returns the ports of a host's trainers (master, chief and workers), then those of its ps.

    Args:
      first: the port of the first trainer. The first ps takes the next one, and so on in turns, so
        that these two have the same ports on every host. Or FREE_PORTS, which are not known yet.
      host: the host whose tasks need ports.

    Raises:
      LaunchError: there are too few ports.
    """
    trainers, ps = host.count(*CHIEFS, "worker"), host.count("ps")
    if first == FREE_PORTS:
        return [None] * (trainers + ps)
    turns = [*range(0, 2 * trainers, 2), *range(1, 2 * ps, 2)]
    last = first + max(turns, default=0)
    if last > 65_535:
        raise LaunchError(f"the tasks of {host.name} need ports up to {last:,}; start lower")
    return [first + turn for turn in turns]


_CONFIG = "--config"


def with_settings(arguments: Sequence[str]) -> list[str]:
    """Returns the training's arguments with settings in the place of files.

    Raises:
      LaunchError: a file cannot be read, or is no mapping of single values.
    """
    result, words = list[str](), iter(arguments)
    for word in words:
        flag, equals, path = word.partition("=")
        if flag == _CONFIG:
            settings = _read_settings(path if equals else next(words, ""))
            word = f"{_CONFIG}={json.dumps(settings)}"
        result.append(word)
    return result


def _read_settings(path: str) -> dict[str, Any]:
    """Returns the settings of a file, as text, in a form that the training program reads."""
    from cifar10.config import settings_file
    from cifar10.errors import ConfigError

    try:
        rows, is_result = settings_file.read(path, _CONFIG)
    except ConfigError as error:
        raise LaunchError(str(error)) from None
    settings: dict[str, Any] = {}
    for place, key, text in rows:
        if key in settings:
            raise LaunchError(f"{place}: {key} is given twice; keep one")
        if isinstance(text, (list, dict)):
            raise LaunchError(f"{place}: {key} must be one value, not a list or a mapping")
        settings[key] = text
    return {"configuration": settings} if is_result else settings


def folder_of(arguments: Sequence[str], setting: str) -> Optional[str]:
    """Returns the folder that the arguments give for a setting, as given; None if none.

    Flags override --config.

    Args:
      arguments: the training's arguments, as `with_settings` returns them.
      setting: `data_dir`, `output_dir` or `work_dir`.
    """
    given: dict[str, Any] = {}
    for word, following in zip(arguments, [*arguments[1:], ""]):
        flag, equals, value = word.partition("=")
        if flag == _CONFIG and value.startswith("{"):
            content = json.loads(value)
            settings = content.get("configuration", content)
            given = {**{_name(key): text for key, text in settings.items()}, **given}
        elif flag.startswith("--"):
            given[_name(flag[2:])] = value if equals else following
    return given.get(setting)


def _name(key: str) -> str:
    """Returns the name of a setting, which is spelt with dashes as well; --job-dir is a synonym."""
    name = key.replace("-", "_")
    return "output_dir" if name == "job_dir" else name
