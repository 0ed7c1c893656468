"""Makes this process's Cluster from TF_CONFIG or the flags. Standard library only.

It also checks that the settings fit the cluster.
"""

import dataclasses
from collections.abc import Mapping
from typing import Optional

from cifar10 import optim
from cifar10.cluster import spec, tf_config
from cifar10.cluster.spec import CHIEF, EVALUATOR, MASTER, PS, WORKER, Cluster, Jobs, show
from cifar10.cluster.tf_config import FLAGS, TF_CONFIG, normalise, source_named
from cifar10.config.settings import flag_name
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10_program.paths import real


def resolve(config: TrainConfig, environ: Mapping[str, str]) -> Optional[Cluster]:
    """Determines the cluster and this process's task in it.

    Args:
      config: the settings; they may name hosts and the task, and they must fit the cluster.
      environ: environment variables, of which TF_CONFIG and CIFAR10_JOB_TOKEN are read.

    Returns:
      The cluster; None if this process works alone, because there is no cluster, or because this
      is its master in another mode than training, or in a dry run.

    Raises:
      ConfigError: TF_CONFIG or the flags are wrong, they contradict each other, or a setting does
        not fit the cluster.
    """
    with source_named(TF_CONFIG):
        jobs, task_type, task_index, model_dir = tf_config.read(environ.get(TF_CONFIG, ""))
        if model_dir and real(config.resolve(model_dir)) != real(config.output_path):
            said = f"model_dir is {model_dir}, but --output-dir {config.output_dir}"
            raise ConfigError(f"{said}; give both the same folder")
        cluster = normalise(jobs, task_type, task_index, TF_CONFIG)
    with source_named(FLAGS):
        by_flags = normalise(*_tasks_of_flags(config), FLAGS)
    if cluster and by_flags:
        both = (cluster, by_flags)
        here, there = (f"{found.label} of {show(found.platform_jobs)}" for found in both)
        if (cluster.own.role, cluster.jobs) != (by_flags.own.role, by_flags.jobs):
            said = f"TF_CONFIG says {here}, the flags say {there}"
            flags = "--ps-hosts, --worker-hosts, --job-name and --task-index"
            way_out = f"unset TF_CONFIG, or leave {flags} out"
            raise ConfigError(f"TF_CONFIG and the flags contradict each other: {said}; {way_out}")
    cluster = cluster or by_flags
    if cluster is None:
        return None
    if token := environ.get(spec.TOKEN, "").strip():
        cluster = dataclasses.replace(cluster, token=spec.digest(token))
    with source_named(cluster.source):
        if config.mode == "train_and_evaluate" and not config.dry_run:
            _check_settings(config, cluster)
            return cluster
        if not cluster.is_master:
            what = "--dry-run" if config.dry_run else f"--mode {config.mode}"
            fault = f"{what} is for one process, but this is {cluster.label} of a cluster"
            raise ConfigError(f"{fault}; run it on the master, or without a cluster")
    return None


def _tasks_of_flags(config: TrainConfig) -> tuple[Jobs, Optional[str], Optional[int]]:
    """Returns addresses by job, and this task's type and index, as the flags give them."""
    jobs = {}
    for job, hosts in ((PS, config.ps_hosts), (WORKER, config.worker_hosts)):
        if hosts and hosts.strip():
            jobs[job] = tuple(address.strip() for address in hosts.split(","))
    task_type, task_index = config.job_name, config.task_index
    if task_type in (MASTER, CHIEF, EVALUATOR) and task_index is None:
        task_index = 0  # These jobs have a single task.
    is_master = task_type in (MASTER, CHIEF) and task_index == 0
    return jobs, WORKER if is_master else task_type, task_index


def notes(config: TrainConfig, cluster: Optional[Cluster]) -> list[str]:
    """Returns a line for each setting of several workers that changes nothing here.

    Scripts give these flags to every job, whatever its size.

    Args:
      config: the settings.
      cluster: the cluster and this process's task in it; None: this process works alone.
    """
    if config.mode != "train_and_evaluate" or (cluster and not cluster.is_trainer):
        return []
    count = cluster.num_trainers if cluster else 1
    who = f"the cluster has {count} tasks that train" if count > 1 else "this process trains alone"
    names = ("sync", "replication", "ps_transfer", "replicas_to_aggregate") if count == 1 else ()
    useless = [flag_name(name) for name in names if config.is_set(name)]
    if config.num_workers not in (None, count):
        useless.append(f"--num-workers {config.num_workers}")
    return [f"note: {name} changes nothing: {who}" for name in useless]


def _check_settings(config: TrainConfig, cluster: Cluster) -> None:
    count, jobs = cluster.num_trainers, cluster.platform_jobs
    if config.variable_strategy == "GPU" and not cluster.is_single_process:
        rule = "--variable-strategy GPU is for a process that trains alone"
        where = f"on the CPUs of its ps, or else of its master ({show(jobs)})"
        raise ConfigError(f"{rule}; what the tasks of a cluster share is {where}: leave it out")
    if count > 1 and PS not in jobs and config.replication != "in-graph":
        fault = f"{count} tasks train but there is no ps to hold what they share"
        raise ConfigError(f"{fault}: {show(jobs)}; add a ps, or give --replication in-graph")
    if config.replicas_to_aggregate is not None and config.replicas_to_aggregate > count:
        rule = f"--replicas-to-aggregate must be at most {count}, the number of tasks that train"
        raise ConfigError(f"{rule}, got {config.replicas_to_aggregate} ({show(jobs)})")
    if count == 1 or config.sync or config.replication == "in-graph":
        return
    if config.lookahead_steps or optim.find(config.optimizer).updates_at_once:
        name = "lookahead_steps" if config.lookahead_steps else "optimizer"
        need = f"{flag_name(name)} {getattr(config, name)} needs all weights between two updates"
        fault = f"{count} tasks update them at any time"
        raise ConfigError(f"{need}, and {fault}; leave --sync=false out, or give another")
