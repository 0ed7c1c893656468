"""Writes a job's batch script: the options for sbatch, and the description of the cluster.

slurm:                          # a section of a cluster file
  partition: gpu                # `account` and `qos` are set in the same way
  time: 2-12:00:00              # default: the partition's
  mem: 16G                      # memory on each node
  cpus_per_task: 8              # default: 1
  gpu_type: a100
  exclusive: true               # whole nodes
  requeue: true                 # after preemption, a node's failure or the time limit
  options: [--constraint=ib, --mail-type=END]
"""

import json
import os
import re
import shlex
from dataclasses import dataclass
from typing import Optional

from launch.cluster.host_list import ROOT
from launch.cluster.model import LEADS, TASK_TYPES, Cluster, Host
from launch.cluster.show import quoted_path, variables
from launch.cluster.tasks import Job
from launch.cluster.yaml_section import matching, option, said, setting, whole, yes_or_no

NAME = "cifar10"
_SAVE_SECS = 10  # on top of the time that tasks get to stop, for messages to the nodes

_NAME = matching(r"[A-Za-z0-9_][A-Za-z0-9_.,-]*", "a name, as sbatch takes it")
_MEM = matching(r"[0-9]+[KMGT]?", "a size such as 16G, as sbatch takes it")
_TIME = r"(?:(\d{1,5})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?"
_LIMIT = matching(_TIME, "minutes, h:mm:ss or d-hh:mm:ss, as sbatch takes them")

# Options of sbatch that the launcher sets.
_OURS = (
    "account array cpus-per-task error exclusive export gpus gpus-per-node gpus-per-task gres "
    "job-name mem no-requeue nodes ntasks ntasks-per-node open-mode output parsable partition qos "
    "requeue signal time wait wrap"
)

_SCRIPT = """\
#!/bin/bash
{options}
#
# Submit it with sbatch; it runs as it stands. On the nodes that Slurm chooses it starts one agent
# each (srun), which runs that node's tasks with their TF_CONFIG. The job ends with the master, and
# its exit code is that of the first task that failed. scancel lets the master save.
{needs}
cd {root} || exit
exec {python} -m launch.backends.slurm.job{environment} "$@" -- {arguments}<<'CLUSTER'
{cluster}
CLUSTER
"""


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
    options: tuple[str, ...] = setting((), option(r"[A-Za-z0-9_.,:;/+@%&|*\[\]()!=-]", _OURS))


def script(job: Job) -> str:
    """Returns the batch script of a job."""
    cluster, host = job.cluster, job.cluster.hosts[0]
    python = os.path.join(host.workdir, host.python) if "/" in host.python else host.python
    names, needed = [name for name, _ in cluster.environment], variables(job)
    return _SCRIPT.format(
        options="\n".join(f"#SBATCH {option}" for option in options(cluster)),
        needs=f"# The shell that submits it must have set: {', '.join(needed)}\n" if needed else "",
        root=shlex.quote(str(ROOT)),
        python=quoted_path(python),
        environment=f" --environment={','.join(names)}" if names else "",
        arguments="".join(f"{shlex.quote(argument)} " for argument in job.arguments),
        cluster=description(cluster),
    )


def options(cluster: Cluster) -> list[str]:
    """Returns the options for sbatch."""
    slurm: SlurmSettings = cluster.settings.get("slurm", SlurmSettings())
    busiest = max(host.count(*TASK_TYPES) for host in cluster.hosts)
    found = [
        f"--job-name={NAME}",
        f"--nodes={len(cluster.hosts)}",
        "--ntasks-per-node=1",  # the agent, which divides the node's cores and GPUs among tasks
        f"--cpus-per-task={busiest * slurm.cpus_per_task}",
    ]
    if gpus := max(_gpus(cluster, host) for host in cluster.hosts):
        found.append(f"--gres=gpu:{f'{slurm.gpu_type}:' if slurm.gpu_type else ''}{gpus}")
    values = {name: getattr(slurm, name) for name in ("partition", "account", "qos", "time", "mem")}
    found += [f"--{name}={value}" for name, value in values.items() if value is not None]
    if slurm.exclusive:
        found.append("--exclusive")
    found.append("--requeue" if slurm.requeue else "--no-requeue")
    # Slurm warns the job in time to save, but no sooner than after half of its time limit.
    warning_secs = int(2 * cluster.limits.stop_secs) + _SAVE_SECS
    if slurm.time:
        warning_secs = min(warning_secs, seconds_of(slurm.time) // 2)
    found.append(f"--signal=B:USR1@{warning_secs}")
    return [*found, "--open-mode=append", *slurm.options]


def _gpus(cluster: Cluster, host: Host) -> int:
    each = cluster.gpus_per_task
    return (host.gpus or 0) if each is None else each * host.count(*LEADS, "worker", "evaluator")


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

    It has every key that a cluster file can set for hosts and tasks, except that the values of
    `environment` come from the batch script's own environment.
    """
    counts = {kind: cluster.count(kind) for kind in TASK_TYPES if cluster.count(kind)}
    content = {"backend": cluster.backend, "tasks": counts, "nodes": len(cluster.hosts)}
    content |= {**said(cluster.hosts[0]), **said(cluster), "limits": said(cluster.limits)}
    content.pop("environment", None)
    # JSON is valid YAML, and json.dumps writes each value on one line.
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    return "\n".join(lines)
