"""The `slurm:` section of a cluster file: what it can say, and how it is read.

slurm:
  partition: gpu                # so also account, qos
  time: 2-12:00:00              # default: the partition's
  mem: 16G                      # of each node
  cpus_per_task: 8              # default: 1
  gpu_type: a100
  exclusive: true               # whole nodes
  requeue: true                 # after preemption, failure of a node, time limit
  pending_secs: 3600            # default: waits in the queue without a limit
  options: [--constraint=ib, --mail-type=END]
"""

import re
from dataclasses import dataclass
from typing import Optional

from launch.cluster import yaml_section as rules
from launch.cluster.model import Cluster
from launch.cluster.yaml_section import Section
from launch.errors import LaunchError

_NAME = rules.matching(re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,-]*"), "a name, as sbatch takes it")
_MEM = rules.matching(re.compile(r"[0-9]+[KMGT]?"), "a size such as 16G, as sbatch takes it")
_TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?")
_OPTION = re.compile(r"--([a-z][a-z-]*)(?:=[A-Za-z0-9_.,:;/+@%&|*\[\]()!=-]+)?")

# What the launcher says itself -> where the user says it.
_OWN = {
    **dict.fromkeys(("partition", "account", "qos", "time", "mem", "exclusive"), "its own key"),
    **dict.fromkeys(("requeue", "no-requeue"), "`requeue:`"),
    **dict.fromkeys(("cpus-per-task", "ntasks", "ntasks-per-node"), "`cpus_per_task:`, `tasks:`"),
    **dict.fromkeys(("gres", "gpus", "gpus-per-node", "gpus-per-task"), "`gpus_per_task:`"),
    "nodes": "`nodes:`",
    "export": "`environment:` and `pass_environment:`",
    **dict.fromkeys(("output", "error", "open-mode"), "--state-dir"),
    **dict.fromkeys(("job-name", "signal", "parsable", "wait", "array", "wrap"), "nothing"),
}


@dataclass(frozen=True)
class SlurmSettings:
    """The `slurm:` section of a cluster file; None leaves it to Slurm.

    Attributes:
      partition: as `sinfo` lists them; so are account and qos named as sbatch takes them.
      time: the job's time limit, as sbatch takes it.
      mem: memory of each node, as sbatch takes it.
      cpus_per_task: cores for each task, ps included; a node gets those of all its tasks.
      gpu_type: of the GPUs that `gpus_per_task` or `gpus` ask for.
      exclusive: whole nodes.
      requeue: back to the queue, and on from the last checkpoint, after a preemption, the failure
        of a node or the time limit.
      pending_secs: how long the job may wait for its nodes.
      options: further ones for sbatch, each `--name` or `--name=value`.
    """

    partition: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    time: Optional[str] = None
    mem: Optional[str] = None
    cpus_per_task: int = 1
    gpu_type: Optional[str] = None
    exclusive: bool = False
    requeue: bool = False
    pending_secs: Optional[float] = None
    options: tuple[str, ...] = ()


def settings_of(cluster: Cluster) -> SlurmSettings:
    """What a cluster's description says; the defaults where it says nothing."""
    found: SlurmSettings = cluster.settings.get("slurm", SlurmSettings())
    return found


def read_settings(section: Section) -> SlurmSettings:
    """Reads and checks the section.

    Raises:
      LaunchError: with the file's line, the value, the rule and the way out.
    """
    settings = SlurmSettings(
        partition=section.take("partition", _NAME, None),
        account=section.take("account", _NAME, None),
        qos=section.take("qos", _NAME, None),
        time=section.take("time", _time, None),
        mem=section.take("mem", _MEM, None),
        cpus_per_task=section.take("cpus_per_task", rules.whole(1, 1024), 1),
        gpu_type=section.take("gpu_type", _NAME, None),
        exclusive=section.take("exclusive", rules.yes_or_no, False),
        requeue=section.take("requeue", rules.yes_or_no, False),
        pending_secs=section.take("pending_secs", rules.seconds_or_off, None),
        options=tuple(section.parse("options", n, _option) for n in section.items("options")),
    )
    section.finish()
    return settings


def seconds_of(time: str) -> int:
    """A time limit of sbatch's, such as `90`, `1:30:00` or `2-12`, in seconds.

    Raises:
      LaunchError: it is none.
    """
    match = _TIME.fullmatch(time)
    if not match:
        raise LaunchError(
            f"must be minutes, h:mm:ss or d-hh:mm:ss, as sbatch takes them, got {time!r}"
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    # Behind days, hours come first; else one number is minutes, and two are minutes and seconds.
    weights = (3600, 60, 1) if days or len(numbers) == 3 else (60, 1)
    return int(days or 0) * 86_400 + sum(n * w for n, w in zip(numbers, weights))


def _time(text: str) -> str:
    if seconds_of(text) < 60:
        raise LaunchError(f"must be at least a minute (`time: 1` is one), got {text!r}")
    return text


def _option(text: str) -> str:
    match = _OPTION.fullmatch(text)
    if not match:
        raise LaunchError(
            f"must hold options as sbatch takes them (`--name=value`, without blanks), got {text!r}"
        )
    if match[1] in _OWN:
        raise LaunchError(
            f"must leave --{match[1]} to the launcher, which goes by {_OWN[match[1]]}"
        )
    return text
