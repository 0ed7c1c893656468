"""Writes a job's batch script: the options for sbatch, and the description of the cluster."""

import json
import os
import shlex

from launch.backends.slurm.settings import seconds_of, settings_of
from launch.cluster.host_list import ROOT
from launch.cluster.model import LEADS, TASK_TYPES, Cluster
from launch.cluster.show import quoted_path
from launch.cluster.tasks import Job

NAME = "cifar10"
_SAVE_SECS = 10  # on top of the time that tasks get to stop, for messages to the nodes

_SCRIPT = """\
#!/bin/bash
{options}
#
# Submit it with sbatch; it runs as it stands. On the nodes that Slurm chooses it starts one agent
# each (srun), which runs that node's tasks with their TF_CONFIG. The job ends with the master, and
# its exit code is that of the first task that failed. scancel lets the master save.
{needs}
cd {root} || exit
exec {python} -m launch.slurm_job{environment} "$@" -- {arguments}<<'CLUSTER'
{cluster}
CLUSTER
"""


def script(job: Job) -> str:
    """Returns the batch script of a job."""
    cluster = job.cluster
    names = [name for name, _ in cluster.environment]
    needed = sorted([*names, *cluster.passed])
    return _SCRIPT.format(
        options="\n".join(f"#SBATCH {option}" for option in options(cluster)),
        needs=f"# The shell that submits it must have set: {', '.join(needed)}\n" if needed else "",
        root=shlex.quote(str(ROOT)),
        python=quoted_path(_python(cluster)),
        environment=f" --environment={','.join(names)}" if names else "",
        arguments="".join(f"{shlex.quote(argument)} " for argument in job.arguments),
        cluster=description(cluster),
    )


def options(cluster: Cluster) -> list[str]:
    """Returns the options for sbatch."""
    slurm = settings_of(cluster)
    busiest = max(host.count(*TASK_TYPES) for host in cluster.hosts)
    found = [
        f"--job-name={NAME}",
        f"--nodes={len(cluster.hosts)}",
        "--ntasks-per-node=1",  # the agent, which divides the node's cores and GPUs among tasks
        f"--cpus-per-task={busiest * slurm.cpus_per_task}",
    ]
    gpus = _gpus_per_node(cluster)
    if gpus:
        found.append(f"--gres=gpu:{f'{slurm.gpu_type}:' if slurm.gpu_type else ''}{gpus}")
    for name in ("partition", "account", "qos", "time", "mem"):
        if getattr(slurm, name) is not None:
            found.append(f"--{name}={getattr(slurm, name)}")
    if slurm.exclusive:
        found.append("--exclusive")
    found.append("--requeue" if slurm.requeue else "--no-requeue")
    found.append(f"--signal=B:USR1@{_warning_secs(cluster)}")
    return [*found, "--open-mode=append", *slurm.options]


def description(cluster: Cluster) -> str:
    """Returns the cluster as the text of a cluster file, one key on each line.

    It holds the names of `pass_environment`, and nothing of `environment`.
    """
    first, limits = cluster.hosts[0], cluster.limits
    content: dict[str, object] = {
        "backend": "slurm",
        "tasks": {kind: cluster.count(kind) for kind in TASK_TYPES if cluster.count(kind)},
        "nodes": len(cluster.hosts),
        "workdir": first.workdir,
        "python": first.python,
        "agent_python": first.agent_python,
        "gpus": first.gpus,
        "gpus_per_task": cluster.gpus_per_task,
        "ports": _ports(cluster),
        "pass_environment": list(cluster.passed) or None,
        "limits": {name: "off" if v is None else v for name, v in vars(limits).items()},
        "restarts": cluster.restarts,
    }
    # JSON is valid YAML, and json.dumps writes each value on one line.
    return "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in content.items()
        if value is not None
    )


def _python(cluster: Cluster) -> str:
    """Returns the training's Python; a path is joined to the working directory."""
    python, workdir = cluster.hosts[0].python, cluster.hosts[0].workdir
    return os.path.join(workdir, python) if "/" in python else python


def _ports(cluster: Cluster) -> object:
    low, high = cluster.ports.low, cluster.ports.high
    return "free" if low is None else low if high is None else f"{low}-{high}"


def _gpus_per_node(cluster: Cluster) -> int:
    if cluster.gpus_per_task is None:
        return max(host.gpus or 0 for host in cluster.hosts)
    trainers = max(host.count(*LEADS, "worker", "evaluator") for host in cluster.hosts)
    return trainers * cluster.gpus_per_task


def _warning_secs(cluster: Cluster) -> int:
    """Returns how many seconds before its time limit Slurm warns the job: at most half of it."""
    secs = int(2 * cluster.limits.stop_secs) + _SAVE_SECS
    limit = settings_of(cluster).time
    return min(secs, seconds_of(limit) // 2) if limit else secs
