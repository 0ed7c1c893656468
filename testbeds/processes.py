"""Runs clusters of real processes of cifar10_main.py on the loopback interface; kills tasks."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Callable, Optional, Protocol

from testbeds.errors import TestbedError
from testbeds.ports import free_ports

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "cifar10_main.py"
_POLL_SECS = 0.02
_LAST_CHARS = 2000  # how much of the end of a task's output an error message quotes


def command(*arguments: object, program: pathlib.Path = PROGRAM) -> list[str]:
    """Returns the command that runs a program with this Python."""
    return [sys.executable, str(program), *map(str, arguments)]


def environment() -> dict[str, str]:
    """Returns this process's environment without TF_CONFIG and TF_CPP_*, and with `CI=true`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_C")}
    return {**kept, "CI": "true"}


class Process(Protocol):
    """A task's process: a `subprocess.Popen`, or a `forks.Fork`."""

    pid: int

    def poll(self) -> Optional[int]:
        """Returns the exit code; None if the process still runs."""

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the end; returns the exit code."""

    def send_signal(self, signum: int, /) -> None:
        """Sends a signal."""

    def kill(self) -> None:
        """Sends SIGKILL."""


# Takes the path of a program and its arguments, the working folder, all of the environment, and a
# file to which standard output and error are appended.
Start = Callable[[Sequence[str], pathlib.Path, Mapping[str, str], pathlib.Path], Process]


def start_process(
    words: Sequence[str], cwd: pathlib.Path, env: Mapping[str, str], out: pathlib.Path
) -> "subprocess.Popen[bytes]":
    """Starts a program in a process of its own, with this Python; see `Start`."""
    with out.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *words], cwd=cwd, env=env, stdout=log, stderr=subprocess.STDOUT
        )


_start: Start = start_process


@contextlib.contextmanager
def tasks_started_by(start: Start) -> Iterator[None]:
    """Sets how clusters start their tasks meanwhile."""
    global _start
    before, _start = _start, start
    try:
        yield
    finally:
        _start = before


class ClusterOfProcesses:
    """Starts, kills and restarts the tasks of one cluster.

    Args:
      folder: working folder; it gets a log file for each task.
      arguments: command-line arguments of every task.
      num_ps: number of parameter servers.
      num_workers: number of workers besides the chief.
      evaluator: whether the cluster lists an evaluator, as in Kubeflow. An evaluator that is not
        listed can be started, too, as in Estimator.
      program: the program that each task runs.
      variables: further environment variables of every task.

    Attributes:
      jobs: job name -> addresses of its tasks.
      labels: labels of all tasks, e.g. `worker/0`.
      processes: label -> latest process of each task that was started.
      ended_at: label -> time (`time.time`) at which `wait` saw that the task had ended.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        arguments: Sequence[object],
        num_ps: int = 1,
        num_workers: int = 1,
        evaluator: bool = False,
        program: pathlib.Path = PROGRAM,
        variables: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._variables = dict(variables or {})
        self._folder, self._arguments, self._program = folder, list(arguments), program
        counts = {"master": 1, "ps": num_ps, "worker": num_workers, "evaluator": int(evaluator)}
        ports = iter(free_ports(sum(counts.values())))
        self.jobs = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
            for job, count in counts.items()
            if count
        }
        self.labels = [f"{job}/{i}" for job, tasks in self.jobs.items() for i in range(len(tasks))]
        self.processes: dict[str, Process] = {}
        self.ended_at: dict[str, float] = {}

    def start(self, *labels: str, more: Sequence[object] = ()) -> None:
        """Starts tasks, or all tasks if none is named.

        Args:
          labels: labels of the tasks to start.
          more: further command-line arguments of these tasks.
        """
        for label in labels or self.labels:
            self.ended_at.pop(label, None)
            words = list(map(str, (self._program, *self._arguments, *more)))
            env = {**environment(), **self._variables, "TF_CONFIG": self._tf_config(label)}
            self.processes[label] = _start(words, self._folder, env, self._log(label))

    def kill(self, label: str, signum: int = signal.SIGKILL) -> None:
        """Sends a signal to a task; waits until SIGKILL has ended it."""
        self.processes[label].send_signal(signum)
        if signum == signal.SIGKILL:
            self.processes[label].wait()

    def wait(self, timeout_secs: float = 240, but: Collection[str] = ()) -> None:
        """Waits until all started tasks have ended.

        Args:
          timeout_secs: time limit for all tasks together, in seconds.
          but: labels of tasks not to wait for.

        Raises:
          TestbedError: a task failed, or still runs after the time limit.
        """
        waiting = {label: process for label, process in self.processes.items() if label not in but}
        deadline = time.monotonic() + timeout_secs
        while waiting:
            for label, process in list(waiting.items()):
                code = process.poll()
                if code is not None:
                    self.ended_at[label] = time.time()
                    del waiting[label]
                    if code:
                        raise TestbedError(f"{label} ended with {code}\n{self.all_output()}")
            if waiting and time.monotonic() > deadline:
                raise self._still_running(", ".join(waiting), timeout_secs)
            time.sleep(_POLL_SECS)

    def exit_code(self, label: str, timeout_secs: float = 120) -> int:
        """Waits for one task and returns its exit code.

        Raises:
          TestbedError: the task still runs after the time limit.
        """
        try:
            return self.processes[label].wait(timeout_secs)
        except subprocess.TimeoutExpired:
            raise self._still_running(label, timeout_secs) from None

    def _still_running(self, labels: str, timeout_secs: float) -> TestbedError:
        return TestbedError(f"{labels} still running after {timeout_secs:g} s\n{self.all_output()}")

    def output(self, label: str) -> str:
        """Returns what a task has printed so far, over all its restarts."""
        path = self._log(label)
        return path.read_text() if path.exists() else ""

    def all_output(self) -> str:
        """Returns the end of the output of every task that was started."""
        return "\n".join(
            f"== {label}\n{self.output(label)[-_LAST_CHARS:]}" for label in self.processes
        )

    def wait_for_output(self, label: str, text: str, timeout_secs: float = 240) -> None:
        """Waits until a task has printed `text`.

        Raises:
          TestbedError: the task ended first, or the time limit passed.
        """
        deadline = time.monotonic() + timeout_secs
        while text not in self.output(label):
            ended = self.processes[label].poll() is not None
            if ended or time.monotonic() > deadline:
                raise TestbedError(f"{label} did not print {text!r}\n{self.all_output()}")
            time.sleep(_POLL_SECS)

    def listening(self) -> list[str]:
        """Returns the labels of the tasks whose addresses accept connections."""
        addresses = {
            f"{job}/{index}": address
            for job, tasks in self.jobs.items()
            for index, address in enumerate(tasks)
        }
        return [label for label, address in addresses.items() if _answers(address)]

    def _tf_config(self, label: str) -> str:
        """Returns the TF_CONFIG of a task."""
        job, _, index = label.partition("/")
        task = {"type": job, "index": int(index)}
        return json.dumps({"cluster": self.jobs, "task": task, "environment": "cloud"})

    def _log(self, label: str) -> pathlib.Path:
        return self._folder / f"{label.replace('/', '-')}.log"


@contextlib.contextmanager
def cluster(folder: pathlib.Path, *arguments: object, **shape: Any) -> Iterator[ClusterOfProcesses]:
    """Yields a cluster, and kills its processes at the end.

    Args:
      folder: working folder of the tasks.
      arguments: command-line arguments of every task.
      shape: further arguments of `ClusterOfProcesses`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = ClusterOfProcesses(folder, arguments, **shape)
    try:
        yield found
    finally:
        for process in found.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
