"""Control groups with which processes have little memory or CPU: version 2 or 1 of them."""

import contextlib
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from testbeds.errors import TestbedError

_ROOT = Path("/sys/fs/cgroup")
_FILES = {"memory": ("memory.max", "memory.limit_in_bytes"), "cpu": ("cpu.max", "cpu.cfs_quota_us")}
_QUOTA_US = 1000  # the least that the kernel takes: so processes stand still only briefly


class Group:
    """A control group of one controller, which `remove` removes.

    Args:
      controller: `memory` or `cpu`.
      name: the group's name.

    Raises:
      TestbedError: this machine has no such controller, or not for this user.
    """

    def __init__(self, controller: str, name: str) -> None:
        self._unified = (_ROOT / "cgroup.controllers").exists()
        parent = _ROOT if self._unified else _ROOT / controller
        self.path = parent / name
        try:
            if self._unified:
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            self.path.mkdir()
        except OSError as error:
            raise TestbedError(f"no control group {self.path}: {error.strerror}") from None
        self._limit = self.path / _FILES[controller][0 if self._unified else 1]

    def limit_memory(self, size: int) -> None:
        """Limits the memory that the group's processes may newly take, in bytes."""
        self._limit.write_text(str(size))

    def limit_cpu(self, share: Optional[float]) -> None:
        """Limits the group to a share of one core, above 0 and at most 1; None ends the limit."""
        if share is None:
            self._limit.write_text("max" if self._unified else "-1")
            return
        period_us = round(_QUOTA_US / share)
        if self._unified:
            self._limit.write_text(f"{_QUOTA_US} {period_us}")
        else:
            (self.path / "cpu.cfs_period_us").write_text(str(period_us))
            self._limit.write_text(str(_QUOTA_US))

    def add(self, pids: Iterable[int]) -> None:
        """Moves processes into the group; those that have ended meanwhile are left out."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                (self.path / "cgroup.procs").write_text(str(pid))

    def killed(self) -> bool:
        """Returns whether the kernel killed a process of the group since memory had run out."""
        name = "memory.events" if self._unified else "memory.oom_control"
        return re.search(r"^oom_kill [1-9]", (self.path / name).read_text(), re.M) is not None

    def remove(self) -> None:
        """Moves the group's processes to its parent, and removes it.

        Raises:
          TestbedError: the group cannot be removed.
        """
        for _ in range(100):
            for pid in (self.path / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (self.path.parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.05)
        raise TestbedError(f"{self.path} cannot be removed")
