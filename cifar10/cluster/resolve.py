"""Makes this process's Cluster from TF_CONFIG or the flags. Standard library only.

It also checks that the settings fit the cluster.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Optional

from cifar10.cluster import identity, tf_config
from cifar10.cluster.normalise import normalise, show
from cifar10.cluster.spec import CHIEF, EVALUATOR, MASTER, PS, WORKER, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.settings import flag_name

TF_CONFIG, FLAGS = "TF_CONFIG", "the flags"


def resolve(config: TrainConfig, environ: Mapping[str, str]) -> Optional[Cluster]:
    """Determines the cluster and this process's task in it.

    Args:
      config: the settings; they may name hosts and the task, and they must fit the cluster.
      environ: environment variables, of which TF_CONFIG and CIFAR10_JOB_TOKEN are read.

    Returns:
      The cluster; None if this process works alone, because there is no cluster, or because this
      is its master in another mode than training.

    Raises:
      ConfigError: TF_CONFIG or the flags are wrong, they contradict each other, or a setting does
        not fit the cluster.
    """
    cluster = _from_tf_config(environ.get(TF_CONFIG, ""))
    by_flags = _from_flags(config)
    if cluster is not None and by_flags is not None:
        _check_same(cluster, by_flags)
    cluster = cluster or by_flags
    if cluster is None:
        _check_settings_alone(config)
        return None
    token = environ.get(identity.TOKEN, "").strip()
    if token:
        cluster = dataclasses.replace(cluster, token=identity.digest(token))
    with _source_named(cluster.source):
        if config.mode == "train_and_evaluate":
            _check_settings(config, cluster)
            return cluster
        if not cluster.is_master:
            raise ConfigError(
                f"--mode {config.mode} is for one process, but this is {cluster.label} of a "
                "cluster; run it on the master, or without a cluster"
            )
    return None


@contextlib.contextmanager
def _source_named(source: str) -> Iterator[None]:
    """Appends the origin of the wrong value to the message of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{error} (from {source})") from None


def _from_tf_config(text: str) -> Optional[Cluster]:
    with _source_named(TF_CONFIG):
        jobs, task_type, task_index = tf_config.read(text)
        if jobs:
            return normalise(jobs, task_type, task_index, TF_CONFIG)
        if task_type in (None, MASTER, CHIEF, WORKER) and task_index in (None, 0):
            return None
        task = {"type": task_type, "index": task_index}
        raise ConfigError(
            f"the task is {json.dumps(task)}, but there is no cluster; list its addresses in "
            "cluster, or leave the task out to train alone"
        )


def _from_flags(config: TrainConfig) -> Optional[Cluster]:
    lists = {PS: config.ps_hosts, WORKER: config.worker_hosts}
    jobs = {
        job: tuple(address.strip() for address in hosts.split(","))
        for job, hosts in lists.items()
        if hosts is not None and hosts.strip()
    }
    task_type, task_index = config.job_name, config.task_index
    if not jobs:
        for name in ("job_name", "task_index"):
            if getattr(config, name) is not None:
                raise ConfigError(
                    f"{flag_name(name)} {getattr(config, name)} needs a cluster; give "
                    "--worker-hosts and --ps-hosts, too, or leave it out"
                )
        return None
    if task_type in (MASTER, CHIEF, EVALUATOR) and task_index is None:
        task_index = 0  # These jobs have a single task.
    if task_type in (MASTER, CHIEF) and task_index == 0:
        task_type = WORKER
    for name, value in (("job_name", task_type), ("task_index", task_index)):
        if value is None:
            raise ConfigError(
                f"--ps-hosts and --worker-hosts need {flag_name(name)}, too; say which task of "
                "them this process is, e.g. --job-name worker --task-index 0"
            )
    with _source_named(FLAGS):
        return normalise(jobs, task_type, task_index, FLAGS)


def _check_same(cluster: Cluster, by_flags: Cluster) -> None:
    def tasks(one: Cluster) -> str:
        return f"{one.label} of {show(one.platform_jobs)}"

    if (cluster.role, cluster.jobs) != (by_flags.role, by_flags.jobs):
        raise ConfigError(
            f"TF_CONFIG and the flags contradict each other: TF_CONFIG says {tasks(cluster)}, the "
            f"flags say {tasks(by_flags)}; unset TF_CONFIG, or leave --ps-hosts, --worker-hosts, "
            "--job-name and --task-index out"
        )


def _check_settings_alone(config: TrainConfig) -> None:
    for name in ("replication", "ps_transfer"):
        if config.is_set(name):
            raise ConfigError(
                f"{flag_name(name)} is for several workers; this process trains alone: leave it "
                "out, or give TF_CONFIG or --worker-hosts"
            )


def notes(config: TrainConfig, cluster: Optional[Cluster]) -> list[str]:
    """Returns a line for each setting that changes nothing in this training.

    Scripts give these flags to every job, whatever its size.

    Args:
      config: the settings.
      cluster: the cluster and this process's task in it; None: this process works alone.
    """
    if config.mode != "train_and_evaluate" or (cluster and not cluster.is_trainer):
        return []
    count, who = 1, "this process trains alone"
    if cluster and cluster.num_trainers > 1:
        count = cluster.num_trainers
        trainers = show(cluster.platform_jobs, (PS, EVALUATOR))
        who = f"the cluster has {count} tasks that train ({trainers})"
    found = []
    if count == 1 and config.is_set("sync"):
        found.append(f"note: --sync{'' if config.sync else '=false'} changes nothing: {who}")
    if count == 1 and config.replicas_to_aggregate is not None:
        given = f"--replicas-to-aggregate {config.replicas_to_aggregate}"
        found.append(f"note: {given} changes nothing: {who}")
    if config.num_workers not in (None, count):
        found.append(f"note: --num-workers {config.num_workers} changes nothing: {who}")
    return found


def _check_settings(config: TrainConfig, cluster: Cluster) -> None:
    if config.variable_strategy == "GPU" and not cluster.is_single_process:
        raise ConfigError(
            "--variable-strategy GPU is for a process that trains alone; what the tasks of a "
            "cluster share is on the CPUs of its ps, or else of its master "
            f"({show(cluster.platform_jobs)}): leave it out"
        )
    count = cluster.num_trainers
    if count > 1 and not cluster.ps_addresses and config.replication != "in-graph":
        raise ConfigError(
            f"{count} tasks train but there is no ps to hold what they share: "
            f"{show(cluster.platform_jobs)}; add a ps, or give --replication in-graph"
        )
    if config.replicas_to_aggregate is not None and config.replicas_to_aggregate > count:
        raise ConfigError(
            f"--replicas-to-aggregate must be at most {count}, the tasks that train "
            f"({show(cluster.platform_jobs, (PS, EVALUATOR))}), got {config.replicas_to_aggregate}"
        )
    is_asynchronous = count > 1 and not config.sync and config.replication != "in-graph"
    if config.lookahead_steps and is_asynchronous:
        raise ConfigError(
            f"--lookahead-steps {config.lookahead_steps} averages the weights between updates, and "
            f"{count} tasks update them at any time; leave --sync=false out, or give "
            "--lookahead-steps 0"
        )
    if config.optimizer == "muon" and is_asynchronous:
        raise ConfigError(
            f"--optimizer muon updates whole kernels at once, and {count} tasks would do so at any "
            "time; leave --sync=false out, or give another --optimizer"
        )
