"""Properties of this machine's CPU, as the system reports them. Standard library only."""

import math
import os
import pathlib
import platform
from typing import Optional

_INFO = "/proc/cpuinfo"


def cpu_name(path: str = _INFO) -> str:
    """Returns the model of the CPU, or its architecture if the system does not report a model."""
    return _first("model name", path) or platform.processor() or platform.machine()


def cpu_flags(path: str = _INFO) -> set[str]:
    """Returns the feature flags of the first CPU; empty if the system does not report them."""
    return set(_first("flags", path).split())


def count_cores(
    cgroup_dir: str = "/sys/fs/cgroup", trainers: int = 1, own_affinity: Optional[bool] = None
) -> int:
    """Returns the number of CPU cores that this process may use, at least 1.

    The CPU affinity and the CPU quota of the container limit it. If several processes train on
    this host, a limit may be for this process alone or for all of them together. A limit for this
    process alone counts in full; a common limit is divided by the number of trainers:

    - The affinity is for this process alone if its parent may run on more cores: then `taskset` or
      the launcher has pinned this process. Otherwise it is that of the whole job or of the system,
      for example by `isolcpus`.
    - The cpuset and the quota of a container are for this process alone if it is the container's
      first process. Otherwise the process that started it may start other trainers there, too.

    Args:
      cgroup_dir: path at which the container's cgroup is mounted.
      trainers: number of processes that train on this host, including this one.
      own_affinity: whether the affinity is for this process alone; None: decide as above.
    """
    cores, quota = len(_affinity(0)), _cgroup_quota(cgroup_dir)
    granted = math.inf if quota is None else math.ceil(quota)
    if trainers > 1:
        cores = cores if _is_pinned(own_affinity) else cores // trainers
        granted = granted if _is_first_of_container() else granted / trainers
    return max(1, int(min(cores, granted)))


def _affinity(pid: int) -> set[int]:
    """Returns the cores on which a process may run; all cores if the system does not report them.

    Args:
      pid: id of the process; 0: this process.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(pid)
    return set(range(os.cpu_count() or 1))


def _is_first_of_container() -> bool:
    return os.getpid() == 1


def _is_pinned(known: Optional[bool]) -> bool:
    """Returns whether the CPU affinity is for this process alone; `known` if it is not None."""
    if known is not None:
        return known
    own = _affinity(0)
    if _is_first_of_container():
        return len(own) < (os.cpu_count() or 1)
    # A parent outside the container has the process id 0, for example after `docker exec`.
    parent = os.getppid() or 1
    try:
        return own < _affinity(parent)
    except OSError:  # The parent has ended, or its affinity may not be read.
        return False


def _cgroup_quota(folder: str) -> Optional[float]:
    """Returns the CPU quota of the container's cgroup (v2 or v1) in cores; None if unlimited."""
    files = (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"])
    for names in files:
        try:
            words = [word for n in names for word in pathlib.Path(folder, n).read_text().split()]
            quota, period = map(int, words)
        except (OSError, ValueError):  # Another version of cgroups, or "max", which is no limit.
            continue
        return quota / period if quota > 0 else None
    return None


def _first(name: str, path: str) -> str:
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return ""
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith(name)]
    return found[0] if found else ""
