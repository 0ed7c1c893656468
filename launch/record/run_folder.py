"""The folder of one run, which the verbs for existing runs read; each file, who writes it and when.

file          who writes it                 when, and what
run.json      up, attach                    at the start: what runs, on which hosts, by which
                                            process; no values of variables
status.json   the run loop                  once a second: each task's state, and at last the
                                            result; each update replaces the file
end.json      the launcher, Slurm's job     at the start blanks, whose room the result takes at
                                            the end: a full disk cannot prevent it
output.log    the launcher, Slurm's job     each line of tasks and launcher (`launch.record.output`)
launcher.log  the launcher                  its own lines, where the job writes output.log
cifar10.sbatch, code/   the launcher        when it submits a job of Slurm: its script, and a copy
                                            of the code
slurm.out     Slurm                         what the batch script prints
timeouts      Slurm's job                   at each time limit: how many have come in a row

The run loop is in the launcher, or in Slurm's job. An agent writes nothing.
"""

import contextlib
import json
import math
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from launch.cluster.tasks import Job
from launch.errors import HostError, LaunchError
from launch.record.result import Result, end_record, read_cause

Record = dict[str, Any]

_END_SIZE = 1 << 16  # bytes; a failed task's last lines have less
_WRITTEN_SECS = 60.0  # after the end of a run, by another machine's clock

# The fields of run.json on which all verbs rely.
_RECORD = {"run", "backend", "began", "launcher", "hosts", "tasks"}


def state_dir(given: Optional[str] = None) -> Path:
    """Returns the folder of all runs: `given`, or else one in the user's state folder.

    Raises:
      LaunchError: that is no absolute path, as where the user has no home folder.
    """
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if not os.path.isabs(base):
        raise LaunchError(
            f"the folder of runs must be absolute, got {base}; set HOME, or give --state-dir"
        )
    return Path(base) / "cifar10-launch"


class RunFolder:
    """The folder of one run.

    Args:
      path: the path of the folder, whose last part is the run's id.

    Attributes:
      output_log: the path of the file with the lines of all tasks and of the launcher.
      launcher_log: that of the launcher's lines, if a job on another machine writes `output_log`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.output_log, self.launcher_log = path / "output.log", path / "launcher.log"

    @classmethod
    def create(cls, parent: Path, job: Job, output: Optional[str] = None) -> "RunFolder":
        """Makes the folder of a new run.

        Args:
          parent: the folder of all runs.
          job: the job that is to run.
          output: the folder to which training writes its results; None if it is not known.

        Raises:
          HostError: the folder cannot be written.
        """
        now = time.time()
        moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        cluster = job.cluster
        record = {
            "run": f"{moment}-{int(now % 1 * 0x10000):04x}",
            "name": cluster.name,
            "backend": cluster.backend,
            "source": cluster.source,
            "arguments": job.arguments,
            "began": now,
            "output": output,
            "launcher": _process(os.getpid()),
            "hosts": [
                {"name": host.name, "user": host.user, "agent_python": host.agent_python}
                for host in cluster.hosts
            ],
            "tasks": [
                {"task": t.name, "host": t.host.name, "port": t.port, "argv": t.argv}
                for t in job.tasks
            ],
        }
        return cls.restore(parent, record)

    @classmethod
    def restore(cls, parent: Path, record: Record) -> "RunFolder":
        """Makes the folder of a run from its record; HostError if it cannot be written."""
        folder = cls(parent / record["run"])
        with folder.writes():
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.path.mkdir(mode=0o700)
            folder.reserve_end()
            _replace(folder.path / "run.json", record)
        return folder

    def remove(self) -> None:
        """Takes the run off the list, with all its files; HostError if they cannot be removed."""
        with self.writes():
            shutil.rmtree(self.path)

    @contextlib.contextmanager
    def writes(self) -> Iterator[None]:
        """Raises HostError for an OSError of the context, which writes into the folder."""
        try:
            yield
        except OSError as error:
            hint = "--state-dir names another place"
            raise HostError(f"{self.path}: {error.strerror}; {hint}") from None

    def record(self) -> Record:
        """Returns the content of run.json.

        Raises:
          HostError: it cannot be read, or is not as it was written.
        """
        path = self.path / "run.json"
        try:
            found = _load(path.read_bytes())
            if missing := _RECORD - found.keys():
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
            return found
        except OSError as error:
            raise HostError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise HostError(
                f"{path} is damaged ({error}); end what has {self.run_id} in its environment or "
                "name on the hosts, then remove that folder"
            ) from None

    def add(self, **facts: Any) -> None:
        """Adds entries to run.json; HostError if it cannot be read or written."""
        with self.writes():
            _replace(self.path / "run.json", {**self.record(), **facts})

    def take_over(self) -> None:
        """Makes this process the run's launcher; HostError if run.json cannot be written."""
        self.add(launcher=_process(os.getpid()))

    def status(self) -> Record:
        """Returns the content of status.json and end.json, without what is damaged or missing."""
        found: Record = {}
        for name in ("status.json", "end.json"):
            with contextlib.suppress(OSError, ValueError):
                found |= _load((self.path / name).read_bytes())
        return {"exit_code": None, "reason": None, "tasks": [], "details": [], **found}

    def write_status(self, status: Record) -> None:
        """Replaces status.json; ignores errors, since the job must go on."""
        with contextlib.suppress(OSError):
            _replace(self.path / "status.json", status)

    def reserve_end(self, data: bytes = b"") -> None:
        """Writes data and blanks into end.json, which later needs no new room; OSError if none."""
        descriptor = os.open(self.path / "end.json", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, data.ljust(_END_SIZE), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_end(self, result: Result) -> None:
        """Writes how the job ended into end.json and status.json."""
        end = {"time": time.time(), **end_record(result)}
        data = json.dumps({**end, "details": result.details}).encode()
        with contextlib.suppress(OSError):
            self.reserve_end(data if len(data) <= _END_SIZE else json.dumps(end).encode())
        self.write_status({**self.status(), **end, "details": result.details})

    def end(self) -> Optional[Result]:
        """Returns how the job ended, as its files say; None if they do not."""
        status = self.status()
        if status.get("exit_code") is None:
            return None
        words, details = status["reason"] or "ended", tuple(status["details"])
        return Result(int(status["exit_code"]), words, details=details, cause=read_cause(status))

    def accuracy(self) -> Optional[float]:
        """Returns the accuracy in the run's result.json, within [0, 1].

        It is None without one, and if the file may be of another run: runs that share an output
        folder replace each other's results.
        """
        record, status = self.record(), self.status()
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            path = Path(os.path.expanduser(record["output"])) / "result.json"
            ended = status["time"] if status["exit_code"] is not None else math.inf
            written = path.stat().st_mtime if path.is_absolute() else -math.inf
            if record["began"] <= written <= ended + _WRITTEN_SECS:
                figures = json.loads(path.read_bytes())["figures"]
                accuracy: float = 0.0 + figures["eval_accuracy"]
                return accuracy
        return None

    def launcher_pid(self) -> Optional[int]:
        """Returns the launcher's process id if it still runs on this machine; otherwise None."""
        launcher = self.record()["launcher"]
        return int(launcher["pid"]) if launcher == _process(launcher["pid"]) else None

    def other_machine(self) -> Optional[str]:
        """Returns the other machine on which the launcher may still run; None if there is none.

        Only that machine knows whether it does. A run that has ended needs its launcher no more.
        A container that does not share our process ids counts as another machine.
        """
        machine = str(self.record()["launcher"]["machine"])
        return None if machine == _process(os.getpid())["machine"] or self.end() else machine


def _load(data: bytes) -> Record:
    """Returns the JSON object that a file of a run holds; ValueError if it holds none."""
    try:
        return dict(json.loads(data))
    except (RecursionError, TypeError) as error:
        raise ValueError(str(error)) from None


def find(parent: Path, run_id: Optional[str] = None) -> RunFolder:
    """Returns the run whose id is `run_id`; without one, the newest run.

    Raises:
      LaunchError: there is no such run.
    """
    matching = [run for run in all_runs(parent) if run_id in (None, run.run_id)]
    if not matching:
        what = f"no run {run_id}" if run_id else "no run"
        raise LaunchError(f"{what} in {parent} (`launch list`); --state-dir names another folder")
    return matching[-1]


def all_runs(parent: Path) -> list[RunFolder]:
    """Returns all runs, the oldest first: their ids are the time in UTC."""
    found = (path.parent for path in parent.glob("*/run.json"))
    # The launcher makes no other names, and prints them.
    return [RunFolder(path) for path in sorted(found) if path.name.isprintable()]


def _process(pid: int) -> Record:
    """Returns what identifies a process of this machine; `started` is None if it has ended."""
    # The kernel gives the id of an ended process to new ones, so an id alone does not identify one.
    words = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return {
        "pid": pid,
        "started": None if not words or words[0] == "Z" else words[19],  # A zombie has ended.
        "boot": _text("/proc/sys/kernel/random/boot_id").strip(),
        # Each container has process ids of its own, though it may share the boot id and, with
        # `--network=host`, the host's name.
        "machine": f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}",
    }


def _replace(path: Path, content: Record) -> None:
    """Replaces a file by one that only its owner may read, and that is on disk before it.

    The commands in it may contain secrets.
    """
    partial = path.with_suffix(".partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1))
        file.flush()
        os.fsync(descriptor)
    os.replace(partial, path)


def _text(path: str) -> str:
    """Returns the content of a file; "" if it is not there."""
    with contextlib.suppress(OSError):
        return Path(path).read_text("ascii", "replace")
    return ""
