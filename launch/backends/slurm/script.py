"""Writes a job's batch script: the options for sbatch, and the description of the cluster.

slurm:                          # a section of a cluster file
  partition: gpu                # `account` and `qos` are set in the same way
  time: 2-12:00:00              # default: the partition's
  mem: 16G                      # memory on each node
  cpus_per_task: 8              # default: 1
  gpu_type: a100
  exclusive: true               # whole nodes
  requeue: true                 # after preemption, a node's failure or the time limit
  ps: {partition: cpu}          # nodes for the ps alone; also account, qos, mem, nodes (default: 1)
  snapshot: true                # the job runs a copy of the code, which submitting it makes
  options: [--constraint=ib, --mail-type=END]
"""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Optional

from launch.cluster.cluster_file import as_text
from launch.cluster.host_list import ROOT
from launch.cluster.model import TASK_TYPES, TRAINERS, Cluster, Host
from launch.cluster.show import quoted_path, variables
from launch.cluster.tasks import Job
from launch.cluster.yaml_section import matching, option, setting, whole, yes_or_no

NAME = "cifar10"
_SAVE_SECS = 10  # on top of the time that tasks get to stop, for messages to the nodes

_OF_PS = "partition|account|qos|mem|nodes"
_NAME = matching(r"[A-Za-z0-9_][A-Za-z0-9_.,-]*", "a name, as sbatch takes it")
_MEM = matching(r"[0-9]+[KMGT]?", "a size such as 16G, as sbatch takes it")
_TIME = r"(?:(\d{1,5})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?"
_LIMIT = matching(_TIME, "minutes, h:mm:ss or d-hh:mm:ss, as sbatch takes them")

_SHARED = ("partition", "account", "qos", "time", "mem")

# Options of sbatch that the launcher sets.
_OURS = (
    "account array cpus-per-task error exclusive export gpus gpus-per-node gpus-per-task gres "
    "job-name mem no-requeue nodes ntasks ntasks-per-node open-mode output parsable partition qos "
    "requeue signal time wait wrap"
)


@dataclass(frozen=True)
class SlurmSettings:
    """The `slurm:` section of a cluster file; for None, Slurm's own default applies.

    Attributes:
      partition: the partition's name, as `sinfo` lists it.
      account: the account that sbatch charges.
      qos: the quality of service that sbatch asks for.
      time: the job's time limit, in sbatch's notation.
      mem: the memory on each node, in sbatch's notation.
      cpus_per_task: cores for each task, ps included. Each node gives enough cores for the node
        with the most tasks.
      gpu_type: the type of the GPUs that `gpus_per_task` or `gpus` ask for.
      exclusive: whether the job shares its nodes with no other job.
      requeue: whether the job returns to the queue, to go on from its last checkpoint, after a
        preemption, a node's failure or the time limit.
      ps: what the ps get as the second part of a heterogeneous job, on nodes of their own; what it
        leaves out is that of the first part. Without it, the ps share the trainers' nodes.
      snapshot: whether the job runs the code as it was when the job was submitted.
      options: further options for sbatch, each as `--name` or `--name=value`.
    """

    partition: Optional[str] = setting(None, _NAME)
    account: Optional[str] = setting(None, _NAME)
    qos: Optional[str] = setting(None, _NAME)
    time: Optional[str] = setting(None, _LIMIT)
    mem: Optional[str] = setting(None, _MEM)
    cpus_per_task: int = setting(1, whole(1, 1024))
    gpu_type: Optional[str] = setting(None, _NAME)
    exclusive: bool = setting(False, yes_or_no)
    requeue: bool = setting(False, yes_or_no)
    ps: tuple[tuple[str, str], ...] = setting((), _NAME, key_rule=matching(_OF_PS, _OF_PS))
    snapshot: bool = setting(True, yes_or_no)
    options: tuple[str, ...] = setting((), option(r"[A-Za-z0-9_.,:;/+@%&|*\[\]()!=-]", _OURS))


def batch_script(job: Job, root: Path = ROOT) -> str:
    """Returns the batch script of a job, whose launcher is in the folder `root`."""
    cluster, host = job.cluster, job.cluster.hosts[0]
    python = os.path.join(host.workdir, host.python) if "/" in host.python else host.python
    names, needed = [name for name, _ in cluster.environment], variables(job)
    template = resources.files("launch.backends.slurm") / "templates" / "job.sbatch"
    return template.read_text("utf-8").format(
        options="\n#SBATCH hetjob\n".join(
            "\n".join(f"#SBATCH {option}" for option in part) for part in options(cluster)
        ),
        needs=f"# The shell that submits it must have set: {', '.join(needed)}\n" if needed else "",
        root=shlex.quote(str(root)),
        python=quoted_path(python),
        environment=f" --environment={','.join(names)}" if names else "",
        arguments="".join(f"{shlex.quote(argument)} " for argument in job.arguments),
        cluster=description(cluster),
    )


def options(cluster: Cluster) -> list[list[str]]:
    """Returns the options for sbatch of each part of a job: the ps may have nodes of their own."""
    slurm = cluster.section(SlurmSettings)
    of_ps = [host for host in cluster.hosts if slurm.ps and not host.trains]
    others = [host for host in cluster.hosts if host.trains or not slurm.ps]
    found = [f"--job-name={cluster.name or NAME}", *_resources(cluster, others, {})]
    found += ["--exclusive"] * slurm.exclusive
    found.append("--requeue" if slurm.requeue else "--no-requeue")
    # Slurm warns the job in time to save, but no sooner than after half of its time limit.
    warning_secs = int(2 * cluster.limits.stop_secs) + _SAVE_SECS
    if slurm.time:
        warning_secs = min(warning_secs, seconds_of(slurm.time) // 2)
    found += [f"--signal=B:USR1@{warning_secs}", "--open-mode=append", *slurm.options]
    return [found, _resources(cluster, of_ps, dict(slurm.ps))] if of_ps else [found]


def _resources(cluster: Cluster, hosts: Sequence[Host], own: Mapping[str, str]) -> list[str]:
    slurm = cluster.section(SlurmSettings)
    busiest = max(host.count(*TASK_TYPES) for host in hosts)
    found = [
        f"--nodes={len(hosts)}",
        "--ntasks-per-node=1",  # the agent, which divides the node's cores and GPUs among tasks
        f"--cpus-per-task={busiest * slurm.cpus_per_task}",
    ]
    each = cluster.gpus_per_task
    of_hosts = (h.gpus or 0 if each is None else each * h.count(*TRAINERS) for h in hosts)
    if gpus := max(of_hosts):
        found.append(f"--gres=gpu:{f'{slurm.gpu_type}:' if slurm.gpu_type else ''}{gpus}")
    values = {name: own.get(name, getattr(slurm, name)) for name in _SHARED}
    return [*found, *(f"--{name}={value}" for name, value in values.items() if value is not None)]


def seconds_of(time: str) -> int:
    """Converts a time limit of sbatch, such as `90`, `1:30:00` or `2-12`, to seconds."""
    match = re.fullmatch(_TIME, time)
    days, *parts = match.groups() if match else (None,)
    numbers = [int(part) for part in parts if part is not None]
    # After days, the first number is hours. Without days, one number is minutes, and two numbers
    # are minutes and seconds.
    weights = (3600, 60, 1) if days or len(numbers) == 3 else (60, 1)
    return int(days or 0) * 86_400 + sum(n * w for n, w in zip(numbers, weights))


def description(cluster: Cluster) -> str:
    """Returns the cluster as the text of a cluster file, one key on each line.

    The values of `environment` come from the batch script's own environment.
    """
    of_ps = dict(cluster.section(SlurmSettings).ps)
    nodes = sum(host.trains or not of_ps for host in cluster.hosts)
    return as_text(cluster, {"nodes": nodes, **({"slurm": {"ps": of_ps}} if of_ps else {})})
