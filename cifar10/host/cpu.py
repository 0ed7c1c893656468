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


def count_cores(
    cgroup_dir: str = "/sys/fs/cgroup", trainers: int = 1, own_affinity: Optional[bool] = None
) -> int:
    """CPU cores this process may use: affinity and the container's quota count.

    Where several processes train on a host, each sees the same numbers whether they are its own or
    for all of them together. It takes what was given to it alone, and shares out the rest in equal
    parts, of at least one core:

    - An affinity is this process's own if its parent may run on more cores: then whoever started
      it has pinned it (`taskset` just before it, our launcher). One that its parent has too is
      around the whole job, or the system's, such as `isolcpus`.
    - A cpuset and a quota of a container are this process's own if it is the container's first
      process. Otherwise whatever has started it is in there as well, and may start other trainers.

    Args:
      cgroup_dir: where the container's cgroup is mounted.
      trainers: processes that train on this host, this one among them.
      own_affinity: whether this process's affinity is its own; None: see above.
    """
    cores, quota = len(_affinity(0)), _cgroup_quota(cgroup_dir)
    granted = math.inf if quota is None else math.ceil(quota)
    if trainers > 1:
        cores = cores if _is_pinned(own_affinity) else cores // trainers
        granted = granted if _is_first_of_container() else granted / trainers
    return max(1, int(min(cores, granted)))


def _affinity(pid: int) -> set[int]:
    """The cores that a process may run on, 0 for this one; all where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(pid)
    return set(range(os.cpu_count() or 1))


def _is_first_of_container() -> bool:
    return os.getpid() == 1


def _is_pinned(known: Optional[bool]) -> bool:
    """Whether this process's affinity is for it alone; as `known` has it, if it is known."""
    if known is not None:
        return known
    own = _affinity(0)
    if _is_first_of_container():
        return len(own) < (os.cpu_count() or 1)
    # A parent outside of the container has the number 0, as after `docker exec`.
    parent = os.getppid() or 1
    try:
        return own < _affinity(parent)
    except OSError:  # It has just ended, or may not be asked about.
        return False


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
