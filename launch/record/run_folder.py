"""The folder of one run, which the verbs for existing runs read.

RUN/run.json      what was started, on which hosts, by which process; no values of variables
RUN/status.json   the status of each task, and the outcome; each update replaces the file
RUN/output.log    what tasks and launcher have written, line by line (`launch.record.output`)
RUN/launcher.log  what the launcher has written, if the job writes output.log itself
RUN/logs/         what an agent on this machine keeps of its tasks' output, as it came
RUN/clean         an empty file, which `clean` leaves once the run has been cleaned
"""

import contextlib
import json
import os
import secrets
import shlex
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from launch.cluster.tasks import Job
from launch.errors import HostError, LaunchError
from launch.record.outcome import Outcome, end_record, read_cause

Record = dict[str, Any]

MAYBE_TEXT = (str, type(None))
_KEPT = 100  # the number of runs whose folders are kept

# The types of the fields on which those rely that read run.json and status.json; see `load`.
_RECORD = {
    "run": str,
    "backend": str,
    "launcher": {"pid": int, "started": MAYBE_TEXT, "boot": str, "machine": str},
    "hosts": [{"name": str, "user": MAYBE_TEXT, "agent_python": str}],
    "tasks": [{"task": str, "host": str}],
}
_STATUS = {"exit_code": (int, type(None)), "reason": MAYBE_TEXT, "tasks": [{}]}


def state_dir(given: Optional[str] = None) -> Path:
    """Returns the folder of all runs: `given`, or else one in the user's state folder.

    Raises:
      LaunchError: the user has no home folder.
    """
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):  # the specification has such a path ignored
        base = os.path.expanduser("~/.local/state")
    if not os.path.isabs(base):
        raise LaunchError(
            "the folder of runs is in your home folder, but there is none; set HOME, or give "
            "--state-dir"
        )
    return Path(base) / "cifar10-launch"


class RunFolder:
    """The folder of one run.

    Args:
      path: the path of the folder, whose last part is the run's id.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name

    @classmethod
    def create(cls, parent: Path, job: Job, output: Optional[str] = None) -> "RunFolder":
        """Makes the folder of a new run, and removes those of old runs.

        Args:
          parent: the folder of all runs.
          job: the job that is to run.
          output: the folder to which training writes its results; None if it is not known.

        Raises:
          HostError: the folder cannot be written.
        """
        folder = cls(parent / _new_id())
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            while folder.path.exists():  # of a run that began in the same second
                folder = cls(parent / _new_id())
            folder.path.mkdir(mode=0o700)
            _replace(folder.path / "run.json", _describe(folder.run_id, job, output))
            _forget_old(parent)
        except OSError as error:
            raise HostError(
                f"{folder.path}: {error.strerror}; --state-dir names another place"
            ) from None
        return folder

    def log_path(self, task: str) -> Path:
        """Returns the path of an agent's own log of a task: `logs/worker-0.log` for `worker/0`."""
        return self.path / "logs" / f"{task.replace('/', '-')}.log"

    @property
    def output_log(self) -> Path:
        """The path of the file with the lines of all tasks and of the launcher."""
        return self.path / "output.log"

    @property
    def launcher_log(self) -> Path:
        """The path of the launcher's lines, if a job on another machine writes `output_log`."""
        return self.path / "launcher.log"

    def record(self) -> Record:
        """Returns the content of run.json.

        Raises:
          HostError: it cannot be read, or is not as it was written.
        """
        path = self.path / "run.json"
        try:
            return load(path.read_bytes(), _RECORD)
        except OSError as error:
            raise HostError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise HostError(
                f"{path} is damaged ({error}); end what has {self.run_id} in its environment or "
                "name on the hosts, then remove that folder"
            ) from None

    def flags(self) -> str:
        """Returns the flags with which a verb finds this run."""
        parent = self.path.parent
        with contextlib.suppress(LaunchError):
            if parent == state_dir():
                return f"--run {self.run_id}"
        return f"--run {self.run_id} --state-dir {shlex.quote(str(parent))}"

    def add(self, **facts: Any) -> None:
        """Adds entries to run.json, for `clean`; HostError if it cannot be read or written."""
        try:
            _replace(self.path / "run.json", {**self.record(), **facts})
        except OSError as error:
            raise HostError(f"{self.path / 'run.json'}: {error.strerror}") from None

    def take_over(self) -> None:
        """Makes this process the run's launcher; HostError if run.json cannot be written."""
        self.add(launcher=_this_process())

    def status(self) -> Record:
        """Returns the content of status.json; an empty dict if it cannot be read or is damaged."""
        try:
            return load((self.path / "status.json").read_bytes(), _STATUS, tasks=[])
        except (OSError, ValueError):
            return {}

    def write_status(self, status: Record) -> None:
        """Replaces status.json; ignores errors, since the job must go on."""
        with contextlib.suppress(OSError):
            _replace(self.path / "status.json", status)

    def write_end(self, outcome: Outcome) -> None:
        """Writes how the job ended into status.json."""
        known = {"tasks": [], **self.status(), "time": time.time()}
        self.write_status({**known, **end_record(outcome), "details": outcome.details})

    def end(self) -> Optional[Outcome]:
        """Returns how the job ended, as status.json says; None if it does not."""
        status = self.status()
        code, details = status.get("exit_code"), status.get("details")
        lines = tuple(map(str, details)) if isinstance(details, list) else ()
        if code is None:
            return None
        reason = str(status.get("reason") or "ended")
        return Outcome(int(code), reason, details=lines, cause=read_cause(status))

    def launcher_pid(self) -> Optional[int]:
        """Returns the launcher's process id if it still runs on this machine; otherwise None."""
        launcher, here = self.record()["launcher"], _this_process()
        if any(launcher.get(key) != here[key] for key in ("boot", "machine", "process_ids")):
            return None
        started = _start_time(launcher["pid"])
        return int(launcher["pid"]) if started and started == launcher["started"] else None

    def other_machine(self) -> Optional[str]:
        """Returns the other machine on which the launcher may still run; None if there is none.

        Only that machine knows whether it does. A run that has ended needs its launcher no more.
        A container on this machine that does not share our process ids counts as another one.
        """
        launcher, here = self.record()["launcher"], _this_process()
        if self.end() is not None:
            return None
        if launcher["machine"] != here["machine"]:
            return str(launcher["machine"])
        is_inside = launcher.get("process_ids") != here["process_ids"]
        may_run = launcher["boot"] == here["boot"] and is_inside
        return f"{here['machine']}, in another container" if may_run else None


def load(data: bytes, form: Any, **defaults: object) -> dict[str, Any]:
    """Returns the JSON object that a file of a run, or a line of it, holds.

    Args:
      data: the content.
      form: its form: the key of each field -> a type or several, the form of an object, or a list
        with the form of every item.
      defaults: what fields hold that are missing.

    Raises:
      ValueError: it is no JSON, or has another form.
    """
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    found = {**defaults, **found} if isinstance(found, dict) else found
    if not _fits(found, form):
        raise ValueError("a field is missing, or of another type")
    return dict(found)


def _fits(found: Any, form: Any) -> bool:
    if isinstance(form, dict):
        return isinstance(found, dict) and all(_fits(found.get(k), f) for k, f in form.items())
    if isinstance(form, list):
        return isinstance(found, list) and all(_fits(one, form[0]) for one in found)
    return isinstance(found, form)


def find(parent: Path, run_id: Optional[str] = None) -> RunFolder:
    """Returns the run whose id is `run_id` or begins with it; without one, the newest run.

    Raises:
      LaunchError: there is no such run, or several begin with `run_id`.
    """
    runs = all_runs(parent)
    matching = [run for run in runs if run.run_id.startswith(run_id or "")]
    if not matching:
        newest = ", ".join(run.run_id for run in runs[-3:])
        what = f"no run {run_id} in {parent}" if run_id else f"no run in {parent}"
        way = f"the newest there: {newest};" if newest else "`launch up` starts one,"
        raise LaunchError(f"{what}; {way} --state-dir names another folder")
    exact = [run for run in matching if run.run_id == run_id]
    if run_id and not exact and len(matching) > 1:
        some = ", ".join(run.run_id for run in matching[-3:])
        raise LaunchError(
            f"--run {run_id} fits {len(matching)} runs in {parent}, the newest are {some}; give "
            "more of the id"
        )
    return (exact or matching)[-1]


def all_runs(parent: Path) -> list[RunFolder]:
    """Returns all runs, the oldest first."""
    if not parent.is_dir():
        return []
    found = []
    for path in parent.iterdir():
        with contextlib.suppress(OSError):  # a folder that is no run, or has just been removed
            written = (path / "run.json").stat().st_mtime
            if path.name.isprintable():  # The launcher makes no others, and prints them.
                found.append((_began(path, written), path))
    return [RunFolder(path) for _, path in sorted(found)]


def began_at(record: Mapping[str, Any]) -> Optional[float]:
    """Returns when a run began, in seconds since 1970; None if its run.json does not say."""
    began = record.get("began")
    return began if isinstance(began, (int, float)) and 0 <= began < 1e12 else None


def _began(path: Path, otherwise: float) -> float:
    """Returns when a run began, by its run.json; the local time in its id may come twice."""
    with contextlib.suppress(OSError, ValueError):
        began = began_at(load((path / "run.json").read_bytes(), {}))
        return otherwise if began is None else began
    return otherwise


def _forget_old(parent: Path) -> None:
    """Removes all but the newest `_KEPT` runs; keeps older ones that may have left processes."""
    for folder in all_runs(parent)[:-_KEPT]:
        is_over = folder.end() is not None or (folder.path / "clean").exists()
        with contextlib.suppress(HostError):  # Of a damaged one, it is not known; it stays.
            if is_over and folder.launcher_pid() is None:
                shutil.rmtree(folder.path, ignore_errors=True)  # Another launcher may do so, too.


def _describe(run_id: str, job: Job, output: Optional[str]) -> Record:
    return {
        "run": run_id,
        "backend": job.cluster.backend,
        "source": job.cluster.source,
        "arguments": job.arguments,
        "began": time.time(),
        "output": output,
        "launcher": _this_process(),
        "hosts": [
            {"name": host.name, "user": host.user, "agent_python": host.agent_python}
            for host in job.cluster.hosts
        ],
        "tasks": [
            {"task": t.name, "host": t.host.name, "port": t.port, "argv": t.argv} for t in job.tasks
        ],
    }


def _new_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _this_process() -> Record:
    return {
        "pid": os.getpid(),
        "started": _start_time(os.getpid()),
        "boot": _boot_id(),
        "machine": socket.gethostname(),
        "process_ids": _process_ids(),
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


def _start_time(pid: int) -> Optional[str]:
    """Returns when a process started, in clock ticks since boot; None if it has ended.

    The kernel gives the id of an ended process to new ones, so an id alone does not identify one.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else words[19]  # A zombie has ended.


def _process_ids() -> Optional[str]:
    """Returns the name of the process ids' namespace, of which each container has one of its own.

    Containers may share all the rest: the boot id, and with `--network=host` the host's name.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
