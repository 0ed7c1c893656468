"""The faults: how each is prepared, strikes, and is repaired; and how a job must take it.

A fault that ends the job must end it with this exit code and with a line that says why. Every other
fault may cost time and the steps since the last checkpoint, but the job ends with 0.
"""

import contextlib
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from testbeds.groups import Group
from testbeds.process_list import stop_process
from tests.failing_disk import fill
from tests.faults.cells import AGENT, LAUNCHER, START, Cell
from tests.faults.runs import SLOW_SECS, STOPPED_SECS, Job, run

_SOURCE = Path(__file__).with_name("clock.c")
_JUMP_SECS = 3600
_LINES = 200  # a line each; the agent that logs them needs several pages


class Ending(NamedTuple):
    """How a fault ends a job: the launcher's exit code, and a pattern of the line that says why."""

    codes: Sequence[int]
    line: str = ""


class Fault:
    """A fault of one cell; by itself, it does nothing.

    Args:
      cell: the cell.
      job: the job that it breaks.

    Attributes:
      lasts_secs: how long it lasts if nobody repairs it before.
      note: why the fault could not be made, e.g. since the task had ended already; then the cell
        shows nothing.
    """

    lasts_secs = math.inf

    def __init__(self, cell: Cell, job: Job) -> None:
        self.cell, self.job = cell, job
        self.note = ""
        self._until: Optional[float] = None  # while it lasts

    @property
    def ending(self) -> Optional[Ending]:
        """How it ends the job; None if the job must end with 0."""
        return None

    def prepare(self) -> None:
        """Does what must be done before the job starts."""

    def strike(self) -> None:
        """Breaks the job."""
        self._begin()
        self._until = time.monotonic() + self.lasts_secs

    def go_on(self) -> None:
        """Is called again and again until the job ends."""
        if self._until is not None and time.monotonic() > self._until:
            self.repair()

    def repair(self) -> None:
        """Ends the fault; also if it never struck."""
        if self._until is not None:
            self._until = None
            self._end()

    def _begin(self) -> None:
        """Begins the fault."""

    def _end(self) -> None:
        """Ends a fault that has begun."""


class Signal(Fault):
    """A signal that a process gets."""

    @property
    def _signum(self) -> int:
        return signal.SIGKILL if self.cell.fault == "sigkill" else signal.SIGTERM

    @property
    def ending(self) -> Optional[Ending]:
        """Ends the job if the launcher gets it."""
        if self.cell.task != LAUNCHER:
            return None
        words = "" if self._signum == signal.SIGKILL else "stopped (by SIGTERM|before the start)"
        return Ending([128 + self._signum], words)

    def _begin(self) -> None:
        try:
            os.kill(self.job.pid(self.cell.task), self._signum)
        except (ProcessLookupError, AssertionError):
            self.note = f"{self.cell.task} had ended"


class Stop(Fault):
    """A process that stands still for a while."""

    lasts_secs = STOPPED_SECS

    def _begin(self) -> None:
        self._pid = self.job.pid(self.cell.task)
        with contextlib.suppress(FileNotFoundError):
            stop_process(self._pid)

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)


class OutOfMemory(Fault):
    """A process whose next memory the kernel refuses, so that it kills the process."""

    lasts_secs = 20.0

    @property
    def ending(self) -> Optional[Ending]:
        """Ends the job if the launcher is killed."""
        return Ending([128 + signal.SIGKILL]) if self.cell.task == LAUNCHER else None

    def _begin(self) -> None:
        pid = self.job.pid(self.cell.task)
        self._group = Group("memory", f"faults-{os.getpid()}-{pid}")
        self._group.limit_memory(0)  # beyond what it has: its next page is one too many
        self._group.add([pid])
        if self.cell.task == AGENT and self.cell.time != START:
            self.job.print_lines(_LINES)

    def _end(self) -> None:
        if not self._group.killed():
            self.note = f"{self.cell.task} took no more memory"
        self._group.remove()


class FullDisk(Fault):
    """A disk of its own for a folder, which the test fills and later frees."""

    @property
    def ending(self) -> Optional[Ending]:
        """Ends the job if it writes to the disk, or if the launcher cannot begin."""
        if self.cell.fault == "full-output":
            return Ending([2], r"(No space left|out of space|cannot be written)")
        if self.cell.fault == "full-log" and self.cell.time == START:
            return Ending([1], "No space left on device; --state-dir names another place")
        return None

    def prepare(self) -> None:
        """Mounts the disk."""
        data = self.job.folder / "data"
        folders = {"full-data": data, "full-output": self.job.output, "full-log": self.job.state}
        self._folder = folders[self.cell.fault]
        self._folder.mkdir(exist_ok=True)
        run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", self._folder])
        if self._folder == data:
            shutil.copytree(self.job.data, data, dirs_exist_ok=True)
            self.job.data = data

    def _begin(self) -> None:
        fill(self._folder)

    def go_on(self) -> None:
        """Fills what has become free."""
        if self._until is not None:
            self._begin()

    def _end(self) -> None:
        (self._folder / "filler").unlink(missing_ok=True)


class ReadOnly(Fault):
    """An output folder that becomes read-only: by a mount over it, as a remount would be refused
    while files in it are open for writing.

    The mount is made read-only at another place, where nobody can open a file meanwhile.
    """

    ending = Ending([1, 2], r"(Read-only file system|cannot be written|READONLY|read-only)")

    def _begin(self) -> None:
        aside = self.job.folder / "read-only"
        aside.mkdir(exist_ok=True)
        run(["mount", "--bind", self.job.output, aside])
        run(["mount", "-o", "remount,bind,ro", aside])
        run(["mount", "--bind", aside, self.job.output])
        run(["umount", aside])

    def _end(self) -> None:
        run(["umount", "--lazy", self.job.output])


class Cut(Fault):
    """A link to a host that is cut."""

    lasts_secs = 5.0

    def _begin(self) -> None:
        assert self.job.nodes is not None
        self.job.nodes.cut(self.job.node_of(self.cell.task))

    def _end(self) -> None:
        assert self.job.nodes is not None
        self.job.nodes.heal(self.job.node_of(self.cell.task))


class CutForGood(Cut):
    """A link to a host that is cut until the job has ended."""

    lasts_secs = math.inf
    ending = Ending([1], r"on node\d failed: .*(no message from its agent|does not answer|lost)")


class Clock(Fault):
    """A wall clock that jumps an hour ahead, and some seconds later an hour back from the truth.

    A library that is loaded before the others shifts it for one task, or for the launcher and the
    agent on its machine; changing the machine's own clock would disturb everything else on it.
    """

    lasts_secs = 3.0

    def prepare(self) -> None:
        """Makes the library, and a Python that loads it in each task."""
        folder = self.job.folder
        library = folder / "clock.so"
        run(["cc", "-O2", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"])
        for name in ("master-0", "chief-0", "worker-0", "ps-0", "evaluator-0", LAUNCHER):
            (folder / f"clock-{name}").write_bytes(bytes(4096))
        wrapper = folder / "python"
        wrapper.write_text(
            "#!/bin/sh\n"
            f'export FAULTS_CLOCK={folder}/clock-$(echo "$LAUNCH_TASK" | tr / -)\n'
            f'export LD_PRELOAD={library}\nexec {sys.executable} "$@"\n'
        )
        wrapper.chmod(0o755)
        self.job.python = str(wrapper)
        if self.cell.task == LAUNCHER:
            self.job.launcher_env["LD_PRELOAD"] = str(library)
            self.job.launcher_env["FAULTS_CLOCK"] = str(folder / f"clock-{LAUNCHER}")

    def _begin(self) -> None:
        self._shift(_JUMP_SECS)

    def _end(self) -> None:
        self._shift(-_JUMP_SECS)

    def _shift(self, secs: int) -> None:
        task = self.cell.task
        label = task if task == LAUNCHER else self.job.label(task).replace("/", "-")
        with open(self.job.folder / f"clock-{label}", "r+b") as file:
            file.write(struct.pack("<q", secs))


class Slow(Fault):
    """A process at a fifth of a core for a while; for the agent, every process of its host."""

    lasts_secs = SLOW_SECS

    def _begin(self) -> None:
        pid = self.job.pid(self.cell.task)
        self._group = Group("cpu", f"faults-{os.getpid()}-{pid}")
        self._group.limit_cpu(0.2)
        self._group.add(self.job.processes() if self.cell.task == AGENT else [pid])

    def _end(self) -> None:
        self._group.limit_cpu(None)
        self._group.remove()


FAULTS: dict[str, type[Fault]] = {
    "sigkill": Signal,
    "sigterm": Signal,
    "sigstop": Stop,
    "oom": OutOfMemory,
    "full-data": FullDisk,
    "full-output": FullDisk,
    "full-log": FullDisk,
    "readonly-output": ReadOnly,
    "cut-for-a-while": Cut,
    "cut-for-good": CutForGood,
    "clock": Clock,
    "slow": Slow,
}


def unmount_below(folder: Path) -> None:
    """Unmounts what is mounted below a folder."""
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        mount_point = line.split()[1]
        if mount_point.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", mount_point], check=False)
