"""The settings in the `slurm:` section of a cluster file.

slurm:
  partition: gpu                # `account` and `qos` are set in the same way
  time: 2-12:00:00              # default: the partition's
  mem: 16G                      # memory on each node
  cpus_per_task: 8              # default: 1
  gpu_type: a100
  exclusive: true               # whole nodes
  requeue: true                 # after preemption, a node's failure or the time limit
  pending_secs: 3600            # default: no limit for the wait in the queue
  options: [--constraint=ib, --mail-type=END]
"""

import re
from dataclasses import dataclass
from typing import Optional

from launch.cluster.model import Cluster
from launch.cluster.yaml_section import matching, seconds_or_off, setting, whole, yes_or_no
from launch.errors import LaunchError

_NAME = matching(r"[A-Za-z0-9_][A-Za-z0-9_.,-]*", "a name, as sbatch takes it")
_MEM = matching(r"[0-9]+[KMGT]?", "a size such as 16G, as sbatch takes it")
_TIME = r"(?:(\d{1,5})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?"
_OPTION = r"--([a-z][a-z-]*)(?:=[A-Za-z0-9_.,:;/+@%&|*\[\]()!=-]+)?"

# Options of sbatch that the launcher sets -> how it sets them.
_OWN = {
    **dict.fromkeys(
        ("partition", "account", "qos", "time", "mem", "exclusive"), "from the key of that name"
    ),
    **dict.fromkeys(("requeue", "no-requeue"), "from `requeue:`"),
    **dict.fromkeys(
        ("cpus-per-task", "ntasks", "ntasks-per-node"), "from `cpus_per_task:` and `tasks:`"
    ),
    **dict.fromkeys(("gres", "gpus", "gpus-per-node", "gpus-per-task"), "from `gpus_per_task:`"),
    "nodes": "from `nodes:`",
    "export": "from `environment:` and `pass_environment:`",
    **dict.fromkeys(("output", "error", "open-mode"), "from --state-dir"),
    **dict.fromkeys(("job-name", "signal", "parsable", "wait", "array", "wrap"), "itself"),
}


def seconds_of(time: str) -> int:
    """Converts a time limit of sbatch, such as `90`, `1:30:00` or `2-12`, to seconds.

    Raises:
      LaunchError: the text is not a time limit.
    """
    match = re.fullmatch(_TIME, time)
    if not match:
        raise LaunchError(
            f"must be minutes, h:mm:ss or d-hh:mm:ss, as sbatch takes them, got {time!r}"
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    # After days, the first number is hours. Without days, one number is minutes, and two numbers
    # are minutes and seconds.
    weights = (3600, 60, 1) if days or len(numbers) == 3 else (60, 1)
    return int(days or 0) * 86_400 + sum(n * w for n, w in zip(numbers, weights))


def _time(text: str) -> str:
    if seconds_of(text) < 60:
        raise LaunchError(f"must be at least a minute (`time: 1` is one), got {text!r}")
    return text


def _option(text: str) -> str:
    match = re.fullmatch(_OPTION, text)
    if not match:
        raise LaunchError(
            f"must hold options as sbatch takes them (`--name=value`, without blanks), got {text!r}"
        )
    if match[1] in _OWN:
        raise LaunchError(f"must not hold --{match[1]}, which the launcher sets {_OWN[match[1]]}")
    return text


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
      pending_secs: how long the job may wait for its nodes, in seconds; None is no limit.
      options: further options for sbatch, each as `--name` or `--name=value`.
    """

    partition: Optional[str] = setting(None, _NAME)
    account: Optional[str] = setting(None, _NAME)
    qos: Optional[str] = setting(None, _NAME)
    time: Optional[str] = setting(None, _time)
    mem: Optional[str] = setting(None, _MEM)
    cpus_per_task: int = setting(1, whole(1, 1024))
    gpu_type: Optional[str] = setting(None, _NAME)
    exclusive: bool = setting(False, yes_or_no)
    requeue: bool = setting(False, yes_or_no)
    pending_secs: Optional[float] = setting(None, seconds_or_off)
    options: tuple[str, ...] = setting((), _option)


def settings_of(cluster: Cluster) -> SlurmSettings:
    """Returns the settings of the `slurm:` section, or the defaults if there is no section."""
    found: SlurmSettings = cluster.settings.get("slurm", SlurmSettings())
    return found
