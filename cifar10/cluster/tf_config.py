"""Reads the text of TF_CONFIG. Standard library only."""

import json
import re
from typing import Any, NamedTuple, Optional

from cifar10.errors import ConfigError

_EXAMPLE = '{"cluster": {"master": ["ip0:2222"]}, "task": {"type": "master", "index": 0}}'
# The keys that this program reads, or Estimator.
_KEYS = "cluster task model_dir environment rpc_layer service session_master eval_session_master"


class TFConfig(NamedTuple):
    """What TF_CONFIG says.

    Attributes:
      jobs: the addresses by job, without jobs that have no tasks.
      task_type: the task's type; None if it is missing.
      task_index: the task's index; None if it is missing.
      model_dir: the output folder; None if it is missing.
      unread: keys that nobody reads.
    """

    jobs: dict[str, tuple[str, ...]]
    task_type: Optional[str]
    task_index: Optional[int]
    model_dir: Optional[str]
    unread: list[str]


def read(text: str) -> TFConfig:
    """Reads TF_CONFIG.

    Raises:
      ConfigError: the text is not JSON, a part of it has the wrong type, or the cluster has another
        key.
    """
    spec = _parse(text)
    cluster, task = _part(spec, "cluster"), _part(spec, "task")
    jobs = {job: _addresses(job, tasks) for job, tasks in cluster.items()}
    jobs = {job: addresses for job, addresses in jobs.items() if addresses}
    unread = [key for key in spec if key not in _KEYS.split()]
    for key in unread:
        if "cluster" in key.lower() and isinstance(spec[key], dict if jobs else (dict, list)):
            is_tfjobs = key == "sparseCluster"
            way_out = "take enableDynamicWorker out of the TFJob" if is_tfjobs else "rename it"
            raise ConfigError(
                f"the cluster must have the key cluster, got {json.dumps(key)}; {way_out}"
            )
    return TFConfig(
        jobs,
        _text(task.get("type"), "the task's type"),
        None if task.get("index") is None else _index(task["index"], "the task's index"),
        _text(spec.get("model_dir"), "model_dir"),
        unread,
    )


def _text(value: Any, name: str) -> Optional[str]:
    if value and not isinstance(value, str):
        raise ConfigError(f"{name} must be text, got {json.dumps(value)}")
    return value or None


def _parse(text: str) -> dict[str, Any]:
    try:
        spec = json.loads(text.strip() or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{text[:200]!r} is not JSON, {error}; write {_EXAMPLE}") from None
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
