"""Brings the clusters of all platforms into one form and checks them. Standard library only.

Platforms list a chief, a master, or neither, in which case worker 0 takes its place (Kubeflow's
TFJob). Some list the evaluator (Kubeflow), others do not (Estimator).
"""

import re
from collections.abc import Mapping
from typing import Optional

from cifar10.cluster.spec import CHIEF, EVALUATOR, MASTER, PS, WORKER, Cluster, split_address
from cifar10.errors import ConfigError

Jobs = Mapping[str, tuple[str, ...]]


def normalise(
    jobs: Jobs, task_type: Optional[str], task_index: Optional[int], source: str
) -> Cluster:
    """Names the chief, or else worker 0, the master, and takes the evaluator out of the jobs.

    Without a chief or a master, worker 0 becomes the master and worker k becomes worker k-1. Their
    labels for people remain those of the platform.

    Args:
      jobs: addresses by job; no job is empty.
      task_type: this task's job as the platform names it; None if it is missing.
      task_index: this task's index in that job; None if it is missing.
      source: origin of these values, for messages: "TF_CONFIG" or "the flags".

    Raises:
      ConfigError: the cluster cannot train, or the task is not part of it.
    """
    _check_names(jobs, task_type)
    _check_addresses(jobs)
    _check_jobs(jobs)
    task_type, task_index = _check_task(jobs, task_type, task_index)
    listed = {job: addresses for job, addresses in jobs.items() if job != EVALUATOR}
    jobs = {MASTER if job == CHIEF else job: addresses for job, addresses in jobs.items()}
    evaluator = jobs.pop(EVALUATOR, None)
    if MASTER not in jobs:
        first, *others = jobs.pop(WORKER)
        jobs = {MASTER: (first,), **({WORKER: tuple(others)} if others else {}), **jobs}
        if task_type == WORKER:
            task_type, task_index = (WORKER, task_index - 1) if task_index else (MASTER, 0)
    return Cluster(
        jobs=jobs,
        task_type=task_type,
        task_index=task_index,
        has_evaluator=evaluator is not None or task_type == EVALUATOR,
        source=source,
        evaluator_address=evaluator[0] if evaluator else None,
        listed=listed,
    )


def _check_names(jobs: Jobs, task_type: Optional[str]) -> None:
    known = (MASTER, CHIEF, WORKER, PS, EVALUATOR)
    for job in jobs:
        if job not in known:
            raise ConfigError(f"a job must be one of {', '.join(known)}, got {job!r}; rename it")
    if task_type is not None and task_type not in known:
        raise ConfigError(f"the task's type must be one of {', '.join(known)}, got {task_type!r}")


def _check_addresses(jobs: Jobs) -> None:
    seen: dict[tuple[str, int], str] = {}
    for job, addresses in jobs.items():
        for index, address in enumerate(addresses):
            host, port = split_address(address, f"{job}/{index}")
            # A server listens at all addresses of its machine.
            place = re.sub(r"^(127(\.[0-9]+){3}|::1|localhost)$", "this machine", host), port
            task = f"{job}/{index} ({address})"
            other = seen.setdefault(place, task)
            if other != task:
                raise ConfigError(f"{other} and {task} share a port; give each one of its own")


def _check_jobs(jobs: Jobs) -> None:
    chiefs = [f"{job} {address}" for job in (CHIEF, MASTER) for address in jobs.get(job, ())]
    if len(chiefs) > 1:
        raise ConfigError(
            f"two chiefs: {', '.join(chiefs)}; a cluster has one chief (or master), make the "
            "others workers"
        )
    evaluators = jobs.get(EVALUATOR, ())
    if len(evaluators) > 1:
        raise ConfigError(
            f"a cluster has one evaluator, got {', '.join(evaluators)}; leave the others out"
        )
    if not chiefs and WORKER not in jobs:
        raise ConfigError(
            f"nobody trains: the cluster has {show(jobs)} but no master and no worker; add one"
        )


def _check_task(jobs: Jobs, task_type: Optional[str], task_index: Optional[int]) -> tuple[str, int]:
    """Returns the task's type and index, with `master` in place of `chief`.

    Raises:
      ConfigError: the task is incomplete or not part of the cluster.
    """
    if task_type is None or task_index is None:
        missing = "index" if task_type else "type" if task_index is not None else "type and index"
        raise ConfigError(
            f"there is a cluster, but the task has no {missing}; say which one this is, e.g. "
            '"task": {"type": "worker", "index": 0}'
        )
    if task_type in (MASTER, CHIEF):  # The task may use the one name, and the cluster the other.
        task_type = next((one for one in (MASTER, CHIEF) if one in jobs), task_type)
    # By Estimator's convention, the cluster does not list the evaluator.
    count = 1 if task_type == EVALUATOR else len(jobs.get(task_type, ()))
    if not 0 <= task_index < count:
        raise ConfigError(
            f"this task is {task_type}/{task_index}, which is not in the cluster: {show(jobs)}; "
            "correct the task or the cluster (an index counts from 0)"
        )
    return MASTER if task_type == CHIEF else task_type, task_index


def show(jobs: Jobs, without: tuple[str, ...] = ()) -> str:
    """Returns the addresses of all jobs but some as text for messages."""
    return "; ".join(f"{job} {', '.join(jobs[job])}" for job in jobs if job not in without)
