"""Real processes of cifar10_main.py: one alone, or a cluster on loopback, a task each."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from testbeds.errors import TestbedError

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "cifar10_main.py"
_POLL_SECS = 0.02
_LAST_CHARS = 2000  # of a task's output, in errors


def command(*arguments: object, program: pathlib.Path = PROGRAM) -> list[str]:
    """The words that start a program of this Python's."""
    return [sys.executable, str(program), *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's environment, without the variables that change training or TensorFlow."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return {**kept, "CI": "true"}


def run_alone(folder: pathlib.Path, arguments: Sequence[object]) -> None:
    """Runs one process without a cluster to its end; `alone.log` in `folder` gets its output.

    Raises:
      TestbedError: it failed.
    """
    path = folder / "alone.log"
    with path.open("ab") as log:
        words = command(*arguments)
        done = subprocess.run(
            words, cwd=folder, env=environment(), stdout=log, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        raise TestbedError(f"ended with {done.returncode}: {path.read_text()[-_LAST_CHARS:]}")


class ClusterOfProcesses:
    """Starts, kills and starts again the tasks of one cluster.

    Args:
      folder: gets a log file a task.
      arguments: of every task, as a platform gives them.
      num_ps: parameter servers.
      num_workers: workers beside the master.
      evaluator: whether one is listed in the cluster, as Kubeflow lists it. One that is not may be
        started all the same, as Estimator has it.
      by_flags: the tasks are told of the cluster by flags, as PS/worker demos have it: the master
        is their worker 0.
      program: what each task runs.

    Attributes:
      jobs: addresses by job.
      processes: the latest process of each task that was started, by its label.
      ended_at: when tasks ended (`time.time`), as far as `wait` has seen it.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        arguments: Sequence[object],
        num_ps: int = 1,
        num_workers: int = 1,
        evaluator: bool = False,
        by_flags: bool = False,
        program: pathlib.Path = PROGRAM,
    ) -> None:
        self._folder, self._arguments, self._by_flags = folder, list(arguments), by_flags
        self._program = program
        counts = {"master": 1, "ps": num_ps, "worker": num_workers, "evaluator": int(evaluator)}
        ports = iter(free_ports(sum(counts.values())))
        self.jobs = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
            for job, count in counts.items()
            if count
        }
        self.labels = [f"{job}/{i}" for job, tasks in self.jobs.items() for i in range(len(tasks))]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ended_at: dict[str, float] = {}

    def start(self, *labels: str, more: Sequence[object] = ()) -> None:
        """Starts tasks, with `more` arguments; all of the cluster's if none is named."""
        for label in labels or self.labels:
            place, variables = self._place(label)
            self.ended_at.pop(label, None)
            with open(self._log(label), "ab") as log:
                self.processes[label] = subprocess.Popen(
                    command(*self._arguments, *place, *more, program=self._program),
                    cwd=self._folder,
                    env={**environment(), **variables},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )

    def kill(self, label: str, signum: int = signal.SIGKILL) -> None:
        """Sends a signal; after SIGKILL the task is gone."""
        self.processes[label].send_signal(signum)
        if signum == signal.SIGKILL:
            self.processes[label].wait()

    def wait(self, timeout_secs: float = 150, but: Collection[str] = ()) -> None:
        """Waits until all started tasks have ended.

        Args:
          timeout_secs: for all of them together.
          but: tasks that are left out.

        Raises:
          TestbedError: one of them ended with another exit code than 0, or still runs.
        """
        waiting = {label: one for label, one in self.processes.items() if label not in but}
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

    def exit_code(self, label: str, timeout_secs: float = 60) -> int:
        """Waits for one task and returns its exit code; TestbedError if it still runs."""
        try:
            return self.processes[label].wait(timeout_secs)
        except subprocess.TimeoutExpired:
            raise self._still_running(label, timeout_secs) from None

    def _still_running(self, labels: str, timeout_secs: float) -> TestbedError:
        return TestbedError(f"{labels} still running after {timeout_secs:g} s\n{self.all_output()}")

    def output(self, label: str) -> str:
        """What a task has printed so far, in all its lives."""
        path = self._log(label)
        return path.read_text() if path.exists() else ""

    def all_output(self) -> str:
        """The end of every task's output."""
        return "\n".join(f"== {one}\n{self.output(one)[-_LAST_CHARS:]}" for one in self.processes)

    def wait_for_output(
        self, label: str, text: str, times: int = 1, timeout_secs: float = 90
    ) -> None:
        """Waits until a task has printed `text` so many times; TestbedError if it does not."""
        deadline = time.monotonic() + timeout_secs
        while self.output(label).count(text) < times:
            ended = self.processes[label].poll() is not None
            if ended or time.monotonic() > deadline:
                raise TestbedError(f"{label} did not print {text!r}\n{self.all_output()}")
            time.sleep(_POLL_SECS)

    def listening(self) -> list[str]:
        """The tasks at whose address somebody listens."""
        addresses = {
            f"{job}/{index}": address
            for job, tasks in self.jobs.items()
            for index, address in enumerate(tasks)
        }
        return [label for label, address in addresses.items() if _answers(address)]

    def _place(self, label: str) -> tuple[list[str], dict[str, str]]:
        """The arguments and the environment that tell a task which one it is."""
        job, _, index = label.partition("/")
        if not self._by_flags:
            task = {"type": job, "index": int(index)}
            tf_config = {"cluster": self.jobs, "task": task, "environment": "cloud"}
            return [], {"TF_CONFIG": json.dumps(tf_config)}
        if job == "worker":
            index = str(int(index) + 1)
        workers = [*self.jobs["master"], *self.jobs.get("worker", [])]
        name = "worker" if job == "master" else job
        flags = [f"--worker-hosts={','.join(workers)}", f"--job-name={name}"]
        return [*flags, f"--ps-hosts={','.join(self.jobs['ps'])}", f"--task-index={index}"], {}

    def _log(self, label: str) -> pathlib.Path:
        return self._folder / f"{label.replace('/', '-')}.log"


@contextlib.contextmanager
def cluster(folder: pathlib.Path, *arguments: object, **shape: Any) -> Iterator[ClusterOfProcesses]:
    """A cluster whose processes end with the context, whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    found = ClusterOfProcesses(folder, arguments, **shape)
    try:
        yield found
    finally:
        for process in found.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on, outside the range of outgoing connections.

    Raises:
      TestbedError: there are not so many.
    """
    ports: list[int] = []
    start = 10_000 + os.getpid() * 37 % 20_000
    for port in range(start, 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise TestbedError(f"no {count} free ports from {start} to 32,000")


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
