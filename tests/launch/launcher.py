"""Runs `python -m launch` with a stand-in for training, and checks for leftover processes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Optional

from launch.record.output import LogReader
from launch.record.run_folder import RunFolder
from testbeds.process_list import all_commands, environment_of

ROOT = Path(__file__).resolve().parent.parent.parent
STAND_IN = Path(__file__).with_name("stand_in.py")
LOCAL = ("--on", "local")
TWO = (*LOCAL, "--workers", "1")  # and a ps


def put_script(path: Path, lines: str) -> Path:
    """Writes a shell script that can be called; returns its path."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def make_workdir(folder: Path) -> Path:
    """Makes a working directory whose cifar10_main.py is the stand-in; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(STAND_IN, folder / "cifar10_main.py")
    return folder


class Launcher:
    """Runs `python -m launch` with a state folder and a working directory of its own.

    Args:
      folder: parent of both folders.
      env: environment variables that are added to this process's.

    Attributes:
      cwd: where commands run.
    """

    def __init__(self, folder: Path, env: Optional[dict[str, str]] = None) -> None:
        self.workdir = make_workdir(folder / "work")
        self.state = folder / "state"
        self.env = {**os.environ, **(env or {})}
        self.cwd = ROOT
        self._started: list[subprocess.Popen[str]] = []

    def start(self, verb: str, *words: str) -> "subprocess.Popen[str]":
        """Starts a command of the launcher, with standard output and error in one pipe."""
        return self.run([sys.executable, "-m", "launch", verb, *words])

    def run(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        """Starts any command like one of the launcher."""
        process = subprocess.Popen(
            command,
            cwd=self.cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kills all processes that a failed test may have left running."""
        for process in self._started:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for path in self.state.glob("*/run.json"):
            for pid in processes_of(path.parent.name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def up_words(self, cluster: tuple[str, ...], *arguments: str) -> list[str]:
        """Returns the arguments of `up`.

        Args:
          cluster: flags that describe the cluster.
          arguments: further flags, `--` and the stand-in's arguments.
        """
        place: tuple[str, ...] = ("--state-dir", str(self.state), "--workdir", str(self.workdir))
        if {"--cluster", "kubernetes"} & set(cluster):  # the file or the image has the code
            place = place[:2]
        return [*cluster, *place, *arguments]

    def up(self, cluster: tuple[str, ...], *arguments: str, exit_code: int = 0) -> str:
        """Runs a job to its end; returns its output."""
        return _output(self.start_up(cluster, *arguments), exit_code)

    def start_up(self, cluster: tuple[str, ...], *arguments: str) -> "subprocess.Popen[str]":
        """Starts a job; the caller must end it."""
        return self.start("up", *self.up_words(cluster, *arguments))

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """Kills the launcher of the newest run, and waits for the end of the `up` that shows it."""
        os.kill(self.pid(), signal.SIGKILL)
        process.communicate(timeout=60)

    def pid(self) -> int:
        """Returns the process id of the newest run's launcher."""
        pid = RunFolder(self.state / self.run_id()).launcher_pid()
        assert pid is not None
        return pid

    def verb(self, verb: str, *words: str, exit_code: int = 0) -> str:
        """Runs a command on existing runs, such as `status` or `stop`; returns its output."""
        return _output(self.start(verb, "--state-dir", str(self.state), *words), exit_code)

    def verb_on(self, cluster: tuple[str, ...], verb: str, *words: str, exit_code: int = 0) -> str:
        """Runs `plan`, `check` or `setup` for a cluster; returns its output."""
        return _output(self.start(verb, *cluster, *words), exit_code)

    def run_id(self) -> str:
        """Waits until there is a run, and returns the id of the newest one."""
        wait_for(lambda: self.state.is_dir() and any(self.state.glob("*/run.json")), "a run")
        return max(path.parent.name for path in self.state.glob("*/run.json"))

    def log(self, task: str) -> str:
        """Returns the lines of a task, `worker/0` or `worker-0`, in the newest run's log."""
        log = LogReader(self.state / self.run_id() / "output.log")
        name = task.replace("-", "/")
        return "".join(f"{line.text}\n" for line in log.lines(final=True) if line.task == name)

    def has_saved(self, task: str, folder: str = ".") -> bool:
        """Returns whether a task of the newest run, in a folder of `workdir`, saved at SIGTERM."""
        name = f"saved-{task.replace('/', '-')}-{self.run_id()}"
        return (self.workdir / folder / name).exists()

    def wait_for_log(self, task: str, words: str) -> None:
        """Waits until a line of a task contains `words`."""
        wait_for(lambda: words in self.log(task), f"{words!r} of {task}")

    def wait_until_trains(self, worker: str = "worker/0") -> None:
        """Waits until the master and a worker train: from then on, both save at SIGTERM."""
        for task in ("master/0", worker):
            self.wait_for_log(task, "step 3/")

    def check_secret(
        self,
        cluster: tuple[str, ...],
        line: str,
        *flags: str,
        look: Callable[[str], Sequence[int]] = lambda secret: (),
    ) -> None:
        """Runs a job that passes and prints API_TOKEN; checks that no list, line or file shows it.

        Args:
          cluster: flags that describe the cluster, whose file passes API_TOKEN.
          line: the beginning of a line of the task that is waited for, such as `[worker/0 node1]`.
          flags: further flags of `up`.
          look: called with the value while the job runs; returns the processes that may show it.
        """
        secret = self.env["API_TOKEN"] = "hunter2-and-more"
        process = self.start_up(cluster, *flags, "--", "steps=100000", "env=API_TOKEN")
        self.wait_for_log(line[1:].split()[0], "step 3/")
        assert processes_naming(secret).keys() <= {*look(secret)}
        output = interrupt(process)
        assert f"{line} API_TOKEN=***" in output
        assert secret not in output
        files = [path for path in self.state.rglob("*") if path.is_file()]
        assert [path for path in files if secret.encode() in path.read_bytes()] == []

    def pid_of(self, task: str) -> int:
        """Waits until a task of the newest run has a process, and returns its pid."""
        return pid_of(self.run_id(), task)

    def agent_pids(self) -> list[int]:
        """Returns the pids of the newest run's agents."""
        return agent_pids(self.run_id())

    def cut_power(self, process: "subprocess.Popen[str]") -> None:
        """Kills launcher, agents and guards at once, so that none of them can end the tasks."""
        running = processes_of(self.run_id()).items()
        agents = [pid for pid, words in running if "launch-agent" in words]
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for pid in (process.pid, *agents):
                os.kill(pid, signum)
        process.communicate()
        wait_for(lambda: not self.agent_pids(), "end of the agents")

    def assert_nothing_left(self, timeout_secs: float = 0) -> None:
        """Asserts that no process of the newest run is left after at most `timeout_secs`."""
        assert_nothing_left(self.run_id(), timeout_secs)


def _output(process: "subprocess.Popen[str]", exit_code: int) -> str:
    """Waits for the end of a launcher; returns its output."""
    output, _ = process.communicate(timeout=200)
    assert process.returncode == exit_code, f"exit code {process.returncode}\n{output}"
    return output


def cluster_file(folder: Path, launcher: Launcher, text: str) -> tuple[str, ...]:
    """Writes a cluster file: a master, a worker and a ps on this machine, and the lines in `text`.

    Returns:
      The flag `--cluster` and the path of the file.
    """
    path = folder / "here.yaml"
    hosts = (
        "backend: local\nports: free\nhosts:\n  - name: localhost\n    address: 127.0.0.1\n"
        f"    workdir: {launcher.workdir}\n    roles: {{master: 1, worker: 1, ps: 1}}\n"
    )
    path.write_text(hosts + text)
    return ("--cluster", str(path))


def wait_for(condition: Callable[[], object], what: str, timeout_secs: float = 120) -> None:
    """Waits until a condition holds.

    Raises:
      AssertionError: the condition did not hold in time.
    """
    deadline = time.monotonic() + timeout_secs
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {timeout_secs} s"
        time.sleep(0.02)


def processes_of(run_id: str) -> dict[int, str]:
    """Returns every process of a run on this machine, agents included: pid -> command line."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        is_agent = words[-3:-1] == [b"launch-agent", run_id.encode()]
        if is_agent or f"LAUNCH_RUN_ID={run_id}" in environment_of(int(pid)):
            found[int(pid)] = b" ".join(words).decode()
    return found


def processes_naming(words: str) -> dict[int, str]:
    """Returns the processes of this machine whose command line contains `words`, by pid."""
    return {pid: line for pid, line in all_commands().items() if words in line}


def pid_of(run_id: str, task: str) -> int:
    """Waits until a task's process runs, and returns its pid."""
    found: list[int] = []

    def look() -> bool:
        running = [pid for pid, words in processes_of(run_id).items() if "cifar10_main.py" in words]
        found[:] = [pid for pid in running if f"LAUNCH_TASK={task}" in environment_of(pid)]
        return bool(found)

    wait_for(look, f"process of {task}", 60)
    return found[0]


def agent_pids(run_id: str) -> list[int]:
    """Returns the pids of the run's agents, without their guards, which are child processes."""
    parents = {}
    for pid, words in processes_of(run_id).items():
        if "launch-agent" in words:
            with contextlib.suppress(OSError):  # it ends meanwhile
                status = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
                parents[pid] = int(status.split()[1])
    return [pid for pid, parent in parents.items() if parent not in parents]


def assert_nothing_left(run_id: str, timeout_secs: float = 0) -> None:
    """Asserts that no process of the run is left after at most `timeout_secs`."""
    deadline = time.monotonic() + timeout_secs
    while time.monotonic() < deadline and processes_of(run_id):
        time.sleep(0.05)
    left = processes_of(run_id)
    assert left == {}, left


def read_until(process: "subprocess.Popen[str]", words: str) -> None:
    """Reads a launcher's output up to the first line that contains `words`."""
    assert process.stdout is not None
    assert any(words in line for line in process.stdout), f"it ended without {words!r}"


def interrupt(process: "subprocess.Popen[str]", signum: int = signal.SIGINT) -> str:
    """Sends a signal to a launcher and waits for its end; returns its output."""
    process.send_signal(signum)
    output, _ = process.communicate(timeout=200)
    return output


@contextlib.contextmanager
def signals_once(condition: Callable[[], object], *signums: int) -> Iterator[list[float]]:
    """Sends signals to this process once a condition holds; yields the time of that in a list.

    In the context, they do not end this process, even where the code under test handles them no
    more, or not yet.
    """
    sent: list[float] = []
    is_over = threading.Event()

    def send() -> None:
        try:
            wait_for(lambda: is_over.is_set() or condition(), "reason to send signals")
        finally:  # Without them, the code under test would wait for ever.
            if not is_over.is_set():
                sent.append(time.monotonic())
                for signum in signums:
                    os.kill(os.getpid(), signum)

    before = {signum: signal.signal(signum, lambda *_: None) for signum in signums}
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()
        for signum, handler in before.items():
            signal.signal(signum, handler)


def has_ended(pid: str) -> bool:
    """Returns whether a process has ended, even if its parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True
