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

    The CPU affinity and the CPU quota of the container limit it. If several processes train on this
    host, they share a limit, unless it is for this process alone: the affinity if whoever started
    it says so, and the cpuset and the quota of a container of which it is the first process.

    Args:
      cgroup_dir: path at which the container's cgroup is mounted.
      trainers: number of processes that train on this host, including this one.
      own_affinity: whether the affinity is for this process alone; None: nobody has said so.
    """
    all_cores = os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores
    quota, has_container = _cgroup_quota(cgroup_dir), os.getpid() == 1
    if own_affinity is None:
        own_affinity = has_container and cores < all_cores
    if not own_affinity:
        cores //= trainers
    if quota is not None:
        granted = math.ceil(quota) if trainers == 1 or has_container else quota / trainers
        cores = min(cores, int(granted))
    return max(1, cores)


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
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")
