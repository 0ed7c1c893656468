"""Makes a Cluster from TF_CONFIG, or from lists of addresses. Standard library only.

Platforms list a chief, a master, or neither, in which case worker 0 takes its place (Kubeflow's
TFJob). Some list the evaluator (Kubeflow), others do not (Estimator).
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, Optional

from cifar10.cluster import spec
from cifar10.cluster.spec import CHIEF, EVALUATOR, MASTER, PS, WORKER, Cluster, Jobs
from cifar10.errors import ConfigError

TF_CONFIG, FLAGS = "TF_CONFIG", "the flags"  # where a cluster comes from
_EXAMPLE = '{"cluster": {"master": ["ip0:2222"]}, "task": {"type": "master", "index": 0}}'
_JOBS = (MASTER, CHIEF, WORKER, PS, EVALUATOR)


def read(text: str) -> tuple[Jobs, Optional[str], Optional[int], Optional[str]]:
    """Reads TF_CONFIG.

    Returns:
      The addresses by job, without jobs that have no tasks; the task's type and index, and the
      output folder (`model_dir`). What is missing is None.

    Raises:
      ConfigError: the text is not JSON, a part of it has the wrong type, or the cluster has another
        key.
    """
    try:
        document = json.loads(text.strip() or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{text[:200]!r} is not JSON, {error}; write {_EXAMPLE}") from None
    _require_object(document, "it must be a JSON object")
    parts = {name: value for name, value in document.items() if value is not None}
    cluster, task = parts.get("cluster", {}), parts.get("task", {})
    _require_object(cluster, "cluster must be an object")
    _require_object(task, "task must be an object")
    given = {job: tasks for job, tasks in cluster.items() if tasks not in (None, [], {})}
    jobs = {job: _addresses(job, tasks) for job, tasks in given.items()}
    for key in document:
        if key != "cluster" and "cluster" in key.lower() and isinstance(document[key], dict):
            rule = f"the cluster must have the key cluster, got {json.dumps(key)}"
            way_out = "rename it (for sparseCluster, take enableDynamicWorker out of the TFJob)"
            raise ConfigError(f"{rule}; {way_out}")
    task_type = _text(task.get("type"), "the task's type")
    return jobs, task_type, _index(task.get("index")), _text(document.get("model_dir"), "model_dir")


def estimator_config(cluster: Optional[Cluster], in_graph: bool) -> Optional[str]:
    """Returns the TF_CONFIG that tf.estimator.RunConfig has to read in this task; None: none.

    Estimator rejects some forms that platforms write. The chief's names no cluster, only the server
    on which its sessions run: so it is Estimator's chief, whatever the platform calls it. Tasks
    that only serve, an evaluator and a process alone need none.

    Args:
      cluster: the cluster and this process's task in it; None: this process works alone.
      in_graph: whether workers only serve.
    """
    if cluster is None or cluster.is_single_process or not cluster.is_trainer:
        return None
    config: dict[str, Any] = {"session_master": cluster.own.target}
    if not cluster.is_master:
        if in_graph:
            return None
        config["cluster"] = {job: list(tasks) for job, tasks in cluster.jobs.items()}
        config["task"] = {"type": cluster.task_type, "index": cluster.task_index}
    return json.dumps(config)


def _require_object(value: Any, rule: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{rule}, got {json.dumps(value)}; write {_EXAMPLE}")


def _text(value: Any, name: str) -> Optional[str]:
    if value and not isinstance(value, str):
        raise ConfigError(f"{name} must be text, got {json.dumps(value)}")
    return value or None


def _addresses(job: str, tasks: Any) -> tuple[str, ...]:
    if not isinstance(tasks, list) or not all(isinstance(address, str) for address in tasks):
        rule = f'{job} must be a list of addresses, e.g. ["ip0:2222"]'
        raise ConfigError(f"{rule}, got {json.dumps(tasks)}")
    return tuple(tasks)


def _index(value: Any) -> Optional[int]:
    # Some platforms write it as text.
    if type(value) in (int, str) and re.fullmatch("[0-9]{1,9}", str(value)):
        return int(value)
    if value is None:
        return None
    raise ConfigError(f"the task's index must be a whole number from 0, got {json.dumps(value)}")


@contextlib.contextmanager
def source_named(source: str) -> Iterator[None]:
    """Appends the origin of the wrong value to the message of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{error} (from {source})") from None


def normalise(
    jobs: Jobs, task_type: Optional[str], task_index: Optional[int], source: str
) -> Optional[Cluster]:
    """Names the chief, or else worker 0, the master, and takes the evaluator out of the jobs.

    Without a chief or a master, worker 0 becomes the master and worker k becomes worker k-1. Their
    labels for people remain those of the platform.

    Args:
      jobs: addresses by job; no job is empty. Without any, this process trains alone.
      task_type: this task's job as the platform names it; None if it is missing.
      task_index: this task's index in that job; None if it is missing.
      source: origin of these values, TF_CONFIG or FLAGS.

    Raises:
      ConfigError: the cluster cannot train, or the task is not part of it.
    """
    if not jobs:
        # Platforms that start a single task name it, but list no cluster.
        names_trainer = task_type in (None, MASTER, CHIEF, WORKER) and task_index in (None, 0)
        if (names_trainer and source == TF_CONFIG) or (task_type, task_index) == (None, None):
            return None
        task = "/".join(str(part) for part in (task_type, task_index) if part is not None)
        raise ConfigError(
            f"this task is {task}, but there is no cluster; list its addresses "
            "(in cluster, or by --worker-hosts and --ps-hosts), or leave the task out to train "
            "alone"
        )
    _check(jobs)
    if task_type is not None and task_type not in _JOBS:
        raise ConfigError(f"the task's type must be one of {', '.join(_JOBS)}, got {task_type!r}")
    task_type, task_index = _find_task(jobs, task_type, task_index)
    listed = {job: addresses for job, addresses in jobs.items() if job != EVALUATOR}
    own_jobs = {MASTER if job == CHIEF else job: addresses for job, addresses in listed.items()}
    if MASTER not in own_jobs:
        first, *others = own_jobs.pop(WORKER)
        own_jobs = {MASTER: (first,), **({WORKER: tuple(others)} if others else {}), **own_jobs}
        if task_type == WORKER:
            task_type, task_index = (WORKER, task_index - 1) if task_index else (MASTER, 0)
    has_evaluator = EVALUATOR in (*jobs, task_type)
    return Cluster(own_jobs, task_type, task_index, has_evaluator, source, listed=listed)


def _check(jobs: Jobs) -> None:
    for job in jobs:
        if job not in _JOBS:
            raise ConfigError(f"a job must be one of {', '.join(_JOBS)}, got {job!r}; rename it")
    seen: dict[tuple[str, int], str] = {}
    for job, addresses in jobs.items():
        for index, address in enumerate(addresses):
            task = f"{job}/{index} ({address})"
            other = seen.setdefault(spec.split_address(address, f"{job}/{index}"), task)
            if other != task:
                raise ConfigError(f"{other} and {task} share a port; give each one of its own")
    for job, names in (("chief (or master)", (CHIEF, MASTER)), (EVALUATOR, (EVALUATOR,))):
        found = [f"{name} {address}" for name in names for address in jobs.get(name, ())]
        if len(found) > 1:
            got = ", ".join(found)
            raise ConfigError(f"a cluster has one {job}, got {got}; leave the others out")
    if not {CHIEF, MASTER, WORKER} & jobs.keys():
        has = f"{spec.show(jobs)} but no master and no worker"
        raise ConfigError(f"nobody trains: the cluster has {has}; add one")


def _find_task(jobs: Jobs, task_type: Optional[str], task_index: Optional[int]) -> tuple[str, int]:
    """Returns the task's type, with `master` in place of `chief`, and its index."""
    if task_type is None or task_index is None:
        raise ConfigError(
            "there is a cluster, but the task has no type or no index; say which one this is, e.g. "
            '"task": {"type": "worker", "index": 0}, or --job-name worker --task-index 0'
        )
    if task_type in (MASTER, CHIEF):  # The task may use the one name, and the cluster the other.
        task_type = next((name for name in (MASTER, CHIEF) if name in jobs), task_type)

    # By Estimator's convention, the cluster does not list the evaluator.
    count = 1 if task_type == EVALUATOR else len(jobs.get(task_type, ()))
    if not 0 <= task_index < count:
        fault = f"this task is {task_type}/{task_index}, which is not in the cluster"
        way_out = "correct the task or the cluster (an index counts from 0)"
        raise ConfigError(f"{fault}: {spec.show(jobs)}; {way_out}")
    return MASTER if task_type == CHIEF else task_type, task_index
