"""The faults: how each is prepared, strikes, and is repaired; and how a job must take it.

A fault that ends the job must end it with this exit code and with a line that says why. Every other
fault may cost time and the steps since the last checkpoint, but the job ends with 0.
"""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from testbeds.groups import Group
from testbeds.process_list import stop_process
from tests.faults.cells import AGENT, LAUNCHER, START, Cell
from tests.faults.runs import Job, run

_SOURCE = Path(__file__).with_name("clock.c")
_JUMP_SECS = 3600
_JUMP_LASTS_SECS = 3.0
_SMALL_MEMORY = 0  # bytes beyond what it has: its next page is one too many
_DEATH_SECS = 20.0
_LINES = 200  # a line each; the agent that logs them needs several pages


@dataclass(frozen=True)
class Ending:
    """How a fault ends a job.

    Attributes:
      codes: the exit codes that the launcher may have.
      line: a pattern of the line that says why; "" if the launcher cannot say anything.
    """

    codes: Sequence[int]
    line: str = ""


class Fault:
    """A fault of one cell; by itself, it does nothing.

    Args:
      cell: the cell.

    Attributes:
      ending: how it ends the job; None if the job must end with 0.
      note: why the fault could not be made, e.g. since the task had ended already; then the cell
        shows nothing.
      saved: the step of the last checkpoint when it struck.
      on_nodes: whether each task needs a host of its own.
    """

    ending: Optional[Ending] = None
    on_nodes = False

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.note = ""
        self.saved = 0

    def prepare(self, job: Job) -> None:
        """Does what must be done before the job starts."""

    def strike(self, job: Job) -> None:
        """Breaks the job."""

    def go_on(self, job: Job) -> None:
        """Is called again and again until the job ends."""

    def repair(self, job: Job) -> None:
        """Ends the fault; also if it never struck."""


class Signal(Fault):
    """A signal that a process gets."""

    def __init__(self, cell: Cell, signum: int) -> None:
        super().__init__(cell)
        self._signum = signum
        if cell.task == LAUNCHER:
            gone = signum == signal.SIGKILL
            self.ending = (
                Ending([128 + signum])
                if gone
                else Ending([143], "stopped (by SIGTERM|before the start)")
            )

    def strike(self, job: Job) -> None:
        try:
            pid = job.pid(self.cell.task)
            os.kill(pid, self._signum)
        except (ProcessLookupError, AssertionError):
            self.note = f"{self.cell.task} had ended"


class Stop(Fault):
    """A process that stands still for a while."""

    def strike(self, job: Job) -> None:
        self._pid = None
        with contextlib.suppress(FileNotFoundError):
            pid = job.pid(self.cell.task)
            stop_process(pid)
            self._pid = pid
        self._until = time.monotonic() + job.size.stopped_secs

    def go_on(self, job: Job) -> None:
        if time.monotonic() > self._until:
            self.repair(job)

    def repair(self, job: Job) -> None:
        pid, self._pid = getattr(self, "_pid", None), None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class OutOfMemory(Fault):
    """A process whose next memory the kernel refuses, so that it kills the process."""

    _group: Optional[Group] = None

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        if cell.task == LAUNCHER:
            self.ending = Ending([128 + signal.SIGKILL])

    def strike(self, job: Job) -> None:
        pid = job.pid(self.cell.task)
        self._group = Group("memory", f"faults-{os.getpid()}-{pid}")
        self._group.limit_memory(_SMALL_MEMORY)
        self._group.add([pid])
        self._until = time.monotonic() + _DEATH_SECS
        if self.cell.task == AGENT and self.cell.time != START:
            job.print_lines(_LINES)

    def go_on(self, job: Job) -> None:
        if self._group is not None and time.monotonic() > self._until:
            self.repair(job)

    def repair(self, job: Job) -> None:
        group, self._group = self._group, None
        if group is not None:
            if not group.killed():
                self.note = f"{self.cell.task} took no more memory"
            group.remove()


class FullDisk(Fault):
    """A disk of its own for a folder, which the test fills and later frees."""

    _size = "24m"

    def __init__(self, cell: Cell, what: str) -> None:
        super().__init__(cell)
        self._what = what
        self._is_full = False
        if what == "output":
            self.ending = Ending([2], r"(No space left|out of space|cannot be written)")
        elif what == "log" and cell.time == START:
            self.ending = Ending([1], "No space left on device; --state-dir names another place")

    def prepare(self, job: Job) -> None:
        if self._what == "data":
            copy = job.folder / "data"
            copy.mkdir()
            run(["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", copy])
            shutil.copytree(job.data, copy, dirs_exist_ok=True)
            job.data = copy
            self._folder = copy
        else:
            self._folder = job.output if self._what == "output" else job.state
            run(["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", self._folder])
        if self.cell.time == START:
            self.strike(job)

    def strike(self, job: Job) -> None:
        self._is_full = True
        self.go_on(job)

    def go_on(self, job: Job) -> None:
        if self._is_full:
            with contextlib.suppress(OSError), open(self._folder / "filler", "ab", 0) as file:
                while file.write(bytes(4096)):
                    pass

    def repair(self, job: Job) -> None:
        self._is_full = False
        if hasattr(self, "_folder"):
            (self._folder / "filler").unlink(missing_ok=True)


class ReadOnly(Fault):
    """An output folder that becomes read-only: by a mount over it, as a remount would be refused
    while files in it are open for writing.

    The mount is made read-only at another place, where nobody can open a file meanwhile.
    """

    _mounted = False
    ending = Ending([1, 2], r"(Read-only file system|cannot be written|READONLY|read-only)")

    def prepare(self, job: Job) -> None:
        if self.cell.time == START:
            self.strike(job)

    def strike(self, job: Job) -> None:
        if not self._mounted:
            aside = job.folder / "read-only"
            aside.mkdir(exist_ok=True)
            run(["mount", "--bind", job.output, aside])
            run(["mount", "-o", "remount,bind,ro", aside])
            run(["mount", "--bind", aside, job.output])
            self._mounted = True
            run(["umount", aside])

    def repair(self, job: Job) -> None:
        if self._mounted:
            run(["umount", "--lazy", job.output])
            self._mounted = False


class Cut(Fault):
    """A link to a host that is cut: for a while, or until the job has ended."""

    on_nodes = True

    def __init__(self, cell: Cell, for_good: bool) -> None:
        super().__init__(cell)
        self._for_good = for_good
        self._cut = False
        if for_good:
            reasons = "no message from its agent|does not answer|lost"
            self.ending = Ending([1], rf"on node\d failed: .*({reasons})")

    def strike(self, job: Job) -> None:
        assert job.nodes is not None
        job.nodes.cut(job.node_of(self.cell.task))
        self._cut, self._until = True, time.monotonic() + job.size.cut_secs

    def go_on(self, job: Job) -> None:
        if self._cut and not self._for_good and time.monotonic() > self._until:
            self.repair(job)

    def repair(self, job: Job) -> None:
        if self._cut and job.nodes is not None:
            job.nodes.heal(job.node_of(self.cell.task))
            self._cut = False


class Clock(Fault):
    """A wall clock that jumps an hour ahead, and some seconds later an hour back from the truth.

    A library that is loaded before the others shifts it for one task, or for the launcher and the
    agent on its machine; changing the machine's own clock would disturb everything else on it.
    """

    def prepare(self, job: Job) -> None:
        library = job.folder / "clock.so"
        run(["cc", "-O2", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"])
        for name in ("master-0", "chief-0", "worker-0", "ps-0", "evaluator-0", LAUNCHER):
            (job.folder / f"clock-{name}").write_bytes(bytes(4096))
        wrapper = job.folder / "python"
        wrapper.write_text(
            "#!/bin/sh\n"
            f'export FAULTS_CLOCK={job.folder}/clock-$(echo "$LAUNCH_TASK" | tr / -)\n'
            f'export LD_PRELOAD={library}\nexec {sys.executable} "$@"\n'
        )
        wrapper.chmod(0o755)
        job.python = str(wrapper)
        if self.cell.task == LAUNCHER:
            job.launcher_env["LD_PRELOAD"] = str(library)
            job.launcher_env["FAULTS_CLOCK"] = str(job.folder / f"clock-{LAUNCHER}")

    def strike(self, job: Job) -> None:
        self._shift(job, _JUMP_SECS)
        self._back_at = time.monotonic() + _JUMP_LASTS_SECS

    def go_on(self, job: Job) -> None:
        if time.monotonic() > self._back_at:
            self._shift(job, -_JUMP_SECS)

    def _shift(self, job: Job, secs: int) -> None:
        label = job.label(self.cell.task) if self.cell.task != LAUNCHER else LAUNCHER
        with open(job.folder / f"clock-{label.replace('/', '-')}", "r+b") as file:
            file.write(struct.pack("<q", secs))


class Slow(Fault):
    """A process at a fifth of a core for a while; for the agent, every process of its host."""

    _group: Optional[Group] = None

    def strike(self, job: Job) -> None:
        pid = job.pid(self.cell.task)
        self._group = Group("cpu", f"faults-{os.getpid()}-{pid}")
        self._group.limit_cpu(0.2)
        self._group.add(job.processes() if self.cell.task == AGENT else [pid])
        self._until = time.monotonic() + job.size.slow_secs

    def go_on(self, job: Job) -> None:
        if self._group is not None and time.monotonic() > self._until:
            self.repair(job)

    def repair(self, job: Job) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.limit_cpu(None)
            group.remove()


def fault_of(cell: Cell) -> Fault:
    """Returns the fault of a cell."""
    makers = {
        "sigkill": lambda: Signal(cell, signal.SIGKILL),
        "sigterm": lambda: Signal(cell, signal.SIGTERM),
        "sigstop": lambda: Stop(cell),
        "oom": lambda: OutOfMemory(cell),
        "full-data": lambda: FullDisk(cell, "data"),
        "full-output": lambda: FullDisk(cell, "output"),
        "full-log": lambda: FullDisk(cell, "log"),
        "readonly-output": lambda: ReadOnly(cell),
        "cut-for-a-while": lambda: Cut(cell, for_good=False),
        "cut-for-good": lambda: Cut(cell, for_good=True),
        "clock": lambda: Clock(cell),
        "slow": lambda: Slow(cell),
    }
    return makers[cell.fault]()


def strikes_before_the_start(cell: Cell) -> bool:
    """Returns whether the fault is there before the job starts, as a full disk can be."""
    return cell.time == START and cell.fault.startswith(("full-", "readonly-"))


def unmount_below(folder: Path) -> None:
    """Unmounts what is mounted below a folder."""
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=False)
