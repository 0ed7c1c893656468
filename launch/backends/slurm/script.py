"""Writes a job's batch script: the options for sbatch, and the description of the cluster."""

import dataclasses
import json
import os
import shlex
from typing import Union

from launch.backends.slurm.settings import seconds_of, settings_of
from launch.cluster.host_list import ROOT
from launch.cluster.model import LEADS, TASK_TYPES, Cluster, Host, Limits, Ports
from launch.cluster.show import quoted_path
from launch.cluster.tasks import Job
from launch.cluster.yaml_section import seconds_or_off

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
    host = cluster.hosts[0]
    python = os.path.join(host.workdir, host.python) if "/" in host.python else host.python
    names = [name for name, _ in cluster.environment]
    needed = sorted([*names, *cluster.passed])
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
    # Slurm warns the job in time to save, but no sooner than after half of its time limit.
    warning_secs = int(2 * cluster.limits.stop_secs) + _SAVE_SECS
    if slurm.time:
        warning_secs = min(warning_secs, seconds_of(slurm.time) // 2)
    found.append(f"--signal=B:USR1@{warning_secs}")
    return [*found, "--open-mode=append", *slurm.options]


def description(cluster: Cluster) -> str:
    """Returns the cluster as the text of a cluster file, one key on each line.

    It has every key that a cluster file can set for hosts and tasks, except that the values of
    `environment` come from the batch script's own environment.
    """
    said = {**_said(cluster.hosts[0]), **_said(cluster)}
    said.pop("environment", None)
    counts = {kind: cluster.count(kind) for kind in TASK_TYPES if cluster.count(kind)}
    content = {"backend": "slurm", "tasks": counts, "nodes": len(cluster.hosts), **said}
    # JSON is valid YAML, and json.dumps writes each value on one line.
    return "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()
    )


def _said(settings: Union[Host, Cluster, Limits]) -> dict[str, object]:
    """Returns the keys with which a cluster file gives these settings, see `rules.setting`."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(settings):
        value, rule = getattr(settings, field.name), field.metadata.get("rule")
        is_unset = value == field.default and isinstance(value, (type(None), bool, tuple))
        if isinstance(value, Limits):
            found[field.name] = _said(value)
        elif rule is seconds_or_off and value is None:
            found[field.name] = "off"
        elif rule is not None and not is_unset:
            found[field.metadata["name"] or field.name] = (
                _ports(value) if isinstance(value, Ports) else value
            )
    return found


def _ports(ports: Ports) -> object:
    if ports.low is None:
        return "free"
    return ports.low if ports.high is None else f"{ports.low}-{ports.high}"


def _gpus_per_node(cluster: Cluster) -> int:
    if cluster.gpus_per_task is None:
        return max(host.gpus or 0 for host in cluster.hosts)
    trainers = max(host.count(*LEADS, "worker", "evaluator") for host in cluster.hosts)
    return trainers * cluster.gpus_per_task
