"""Reads the jobs and the task from the text of TF_CONFIG. Standard library only."""

import json
import re
from typing import Any, Optional

from cifar10.errors import ConfigError

_EXAMPLE = '{"cluster": {"master": ["ip0:2222"]}, "task": {"type": "master", "index": 0}}'


def read(text: str) -> tuple[dict[str, tuple[str, ...]], Optional[str], Optional[int]]:
    """Reads the keys `cluster` and `task` of TF_CONFIG and ignores all others.

    Returns:
      The addresses by job, without jobs that have no tasks; the task's type, None if it is missing;
      the task's index, None if it is missing.

    Raises:
      ConfigError: the text is not JSON, or a part of it has the wrong type.
    """
    spec = _parse(text)
    cluster, task = _part(spec, "cluster"), _part(spec, "task")
    jobs = {job: _addresses(job, tasks) for job, tasks in cluster.items()}
    task_type = task.get("type") or None
    if task_type is not None and not isinstance(task_type, str):
        raise ConfigError(f"the task's type must be text, got {json.dumps(task_type)}")
    index = task.get("index")
    return (
        {job: addresses for job, addresses in jobs.items() if addresses},
        task_type,
        None if index is None else _index(index, "the task's index"),
    )


def _parse(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        spec = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not JSON, {error}; write {_EXAMPLE}") from None
    except RecursionError:
        raise ConfigError(f"it is nested too deeply; write {_EXAMPLE}") from None
    if not isinstance(spec, dict):
        raise ConfigError(f"it must be a JSON object, got {json.dumps(spec)}; write {_EXAMPLE}")
    return spec


def _part(spec: dict[str, Any], name: str) -> dict[str, Any]:
    part = spec.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise ConfigError(f"{name} must be an object, got {json.dumps(part)}; write {_EXAMPLE}")
    return part


def _addresses(job: str, tasks: Any) -> tuple[str, ...]:
    """Returns the addresses of a job.

    Args:
      job: name of the job.
      tasks: list of addresses, object with an address for each index, as ClusterSpec allows, or
        None.

    Raises:
      ConfigError: `tasks` is something else.
    """
    if isinstance(tasks, dict):
        by_index = {_index(key, f"an index of {job}"): value for key, value in tasks.items()}
        if sorted(by_index) != list(range(len(tasks))):
            raise ConfigError(
                f"{job} must have an address for each index from 0, without gaps, got "
                f"{json.dumps(tasks)}"
            )
        tasks = [by_index[index] for index in range(len(tasks))]
    if tasks is None:
        return ()
    if not isinstance(tasks, list) or not all(isinstance(address, str) for address in tasks):
        raise ConfigError(
            f'{job} must be a list of addresses, e.g. ["ip0:2222"], got {json.dumps(tasks)}'
        )
    return tuple(tasks)


def _index(value: Any, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        return int(value)
    raise ConfigError(f"{name} must be a whole number from 0, got {json.dumps(value)}")
