"""What the system says of this machine's CPU. Standard library only."""

import math
import os
import pathlib
import platform
from typing import Optional

_INFO = "/proc/cpuinfo"


def cpu_name(path: str = _INFO) -> str:
    """The CPU's model; the architecture where the system does not say."""
    return _first("model name", path) or platform.processor() or platform.machine()


def cpu_flags(path: str = _INFO) -> set[str]:
    """The first CPU's feature flags; empty where the system does not say."""
    return set(_first("flags", path).split())


def count_cores(cgroup_dir: str = "/sys/fs/cgroup") -> int:
    """CPU cores this process may use: affinity and the container's quota count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cgroup_quota(cgroup_dir)
    return max(1, min(cores or 1, math.ceil(quota) if quota else cores or 1))


def _cgroup_quota(folder: str) -> Optional[float]:
    """CPUs that the container's cgroup (v2, or v1) grants, None without a limit."""
    files = (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"])
    for names in files:
        try:
            words = [word for n in names for word in pathlib.Path(folder, n).read_text().split()]
            quota, period = map(int, words)
        except (OSError, ValueError):  # Not this version of cgroups; or "max", without a limit.
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
