"""A real job that a cell breaks: a tiny model, trained by `python -m launch up`."""

import contextlib
import itertools
import os
import re
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
from testbeds.nodes import Nodes
from testbeds.process_list import stop_process
from tests.faults import cells
from tests.faults.cells import LAUNCHER, MASTER, Cell
from tests.launch.launcher import ROOT, agent_pids, pid_of, processes_naming, processes_of

STEPS, CHECKPOINT_STEPS, LOG_STEPS = 600, 150, 25
_MODES = {cells.ASYNC: ["--sync=false"], cells.SYNC: [], cells.IN_GRAPH: ["--replication=in-graph"]}
_POLL_SECS = 0.01
STOPPED_SECS, SLOW_SECS = 6.0, 15.0
LEASE_SECS = 15
_CLUSTER_TIMEOUT = 40
# The sum of the limits below, and of further waits, that may pass one after the other until a job
# has ended: start, idle, grace, three stops, waits before restarts, and for a lost host.
_LIMIT_SECS = 300 + 180 + 20 + 3 * 20 + (1 + 2 + 4) + LEASE_SECS + _CLUSTER_TIMEOUT + 60 + 6 + 15
_STEP = re.compile(r"^\[(?:master|chief|worker)/\d+ [^\]]*\] .*  step ([\d,]+)/", re.MULTILINE)
_START = re.compile(
    r"^\[(?:master|chief)/\d+ [^\]]*\] (?:continuing at step ([\d,]+)|training to step)",
    re.MULTILINE,
)
_CLUSTER = """\
backend: {backend}
workdir: {root}
python: {python}
ports: {ports}
restarts: 3
limits:
  {{start_secs: 300, idle_secs: 180, grace_secs: 20, stop_secs: 20, lease_secs: {lease},
    rejoin_secs: 60}}
hosts:
{hosts}"""


# Set to end all jobs early.
STOP = threading.Event()
_PORTS_A_JOB = 8
_next_ports = itertools.count(10_000 + os.getpid() * 8 % 14_000, _PORTS_A_JOB)


class CellError(Exception):
    """What a cell shows to be wrong, in a line."""


class MissedError(CellError):
    """The job was never seen in the state in which the fault comes; the job itself is fine."""


class Job:
    """One job, which may be started again by the same command.

    Args:
      folder: an empty folder of its own.
      data: the folder of the records.
      cell: the cell that breaks it.
      nodes: the hosts, where the cell needs them.

    Attributes:
      output: the output folder.
      state: the launcher's state folder.
      data: the folder of the records, which may be replaced by a copy before the start.
      ports: the first port of its tasks.
      python: the training's Python.
      launcher_env: further variables of the launcher.
    """

    def __init__(self, folder: Path, data: Path, cell: Cell, nodes: Optional[Nodes] = None) -> None:
        self.folder, self.data, self.nodes = folder, data, nodes
        self._mode, self._has_evaluator = _MODES[cell.replication], cell.task == cells.EVALUATOR
        self.output, self.state = folder / "output", folder / "state"
        for path in (self.output, self.state):
            path.mkdir(parents=True)
        # Not `free`: another process may take such a port while TensorFlow loads.
        self.ports = next(_next_ports)
        self.python = sys.executable
        self.launcher_env: dict[str, str] = dict(nodes.env) if nodes is not None else {}
        self._launchers: list[subprocess.Popen[bytes]] = []
        self.chief = "chief/0" if self._has_evaluator else "master/0"

    @property
    def launcher(self) -> "subprocess.Popen[bytes]":
        """The launcher that was started last."""
        return self._launchers[-1]

    def start(self) -> None:
        """Starts the job, or lets it go on after a repair: always by the same command."""
        path = self.folder / "cluster.yaml"
        path.write_text(self._cluster())
        words = ["up", "--cluster", str(path), "--state-dir", str(self.state)]
        words += ["--no-check", "--", *self.arguments()]
        with (self.folder / f"up-{len(self._launchers) + 1}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "launch", *words],
                cwd=ROOT,
                env={**os.environ, **self.launcher_env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._launchers.append(process)

    def _cluster(self) -> str:
        if self.nodes is None:
            names = {"localhost": ", ".join(self.roles())}
        else:
            names = {f"node{i + 1}": role for i, role in enumerate(self.roles())}
        hosts = ""
        for name, tasks in names.items():
            address = "" if self.nodes is None else f"    address: {self.nodes.address(name)}\n"
            hosts += f"  - name: {name}\n{address}    roles: {{{tasks}}}\n"
        backend = "local" if self.nodes is None else "ssh"
        where = {"backend": backend, "root": ROOT, "python": self.python, "hosts": hosts}
        return _CLUSTER.format(**where, ports=self.ports, lease=LEASE_SECS)

    def roles(self) -> list[str]:
        """Returns the tasks of the cluster, each for a host of its own where there are several."""
        evaluator = ["evaluator: 1"] if self._has_evaluator else []
        return [f"{self.chief[:-2]}: 1", "worker: 1", "ps: 1", *evaluator]

    def arguments(self) -> list[str]:
        """Returns the arguments of training."""
        words = (
            f"--data-dir={self.data} --output-dir={self.output} --model=mlp --hidden-units=8 "
            "--optimizer=adam --learning-rate=0.001 --schedule=constant --train-batch-size=50 "
            f"--checkpoint-steps={CHECKPOINT_STEPS} --log-steps={LOG_STEPS} --train-steps={STEPS} "
            f"--cluster-timeout={_CLUSTER_TIMEOUT}"
        )
        return [*words.split(), *self._mode]

    def node_of(self, task: str) -> str:
        """Returns the name of the node of a task's type."""
        roles = [MASTER, cells.WORKER, "ps", cells.EVALUATOR]
        return f"node{roles.index(task) + 1}"

    def run_ids(self) -> list[str]:
        """Returns the ids of the job's runs, the oldest first."""
        return sorted(path.parent.name for path in self.state.glob("*/run.json"))

    def printed(self) -> str:
        """Returns what the launchers have printed, and with it what the tasks have."""
        paths = sorted(self.folder.glob("up-*.log"))
        return "\n".join(path.read_text(errors="replace") for path in paths)

    def log(self, task: str) -> str:
        """Returns the logs of a task, of all runs one after the other."""
        logs = [LogReader(self.state / run_id / "output.log") for run_id in self.run_ids()]
        lines = (line for log in logs for line in log.lines(final=True))
        return "".join(f"{line.text}\n" for line in lines if line.task == task)

    def label(self, task: str) -> str:
        """Returns the label of a task's type: `master` is `chief/0` beside an evaluator."""
        return self.chief if task == MASTER else f"{task}/0"

    def pid(self, task: str) -> int:
        """Waits until a task, the launcher or an agent runs, and returns its process id."""
        if task == LAUNCHER:
            self.wait_for(lambda: self._has_begun(task), "a launcher")
            pid = RunFolder(self.state / self.run_ids()[-1]).launcher_pid()
            if pid is None:
                raise ProcessLookupError
            return pid
        self.wait_for(lambda: bool(self.run_ids()), "a run")
        run_id = self.run_ids()[-1]
        if task == cells.AGENT:
            self.wait_for(lambda: bool(agent_pids(run_id)), "an agent")
            return agent_pids(run_id)[0]
        return pid_of(run_id, self.label(task))

    def reached(self) -> int:
        """Returns the highest step that a task has reported or that a checkpoint is of."""
        saved = [int(path.stem[11:]) for path in self.output.glob("model.ckpt-*.index")]
        return max([0, *_numbers(_STEP, self.printed()), *saved])

    def starts(self) -> list[int]:
        """Returns the steps from which the chief has begun to train."""
        return _numbers(_START, self.printed())

    def saved_step(self) -> int:
        """Returns the global step of the latest checkpoint; 0 if there is none."""
        try:
            found = re.search(r'"model\.ckpt-(\d+)"', (self.output / "checkpoint").read_text())
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def _while_it_runs(self, poll_secs: float) -> Iterator[None]:
        """Yields again and again until the launcher has ended.

        Raises:
          CellError: it has not ended within the job's limits.
        """
        deadline = time.monotonic() + _LIMIT_SECS
        while self.launcher.poll() is None:
            if STOP.is_set():
                raise CellError("stopped by a signal")
            if time.monotonic() > deadline:
                raise CellError(f"the job hangs: no end within {_LIMIT_SECS:g} s")
            yield
            time.sleep(poll_secs)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a state of the job.

        Raises:
          CellError: the job ended first, or it took longer than the job's limits.
        """
        for _ in self._while_it_runs(_POLL_SECS):
            if condition():
                return
        if not condition():
            raise self._too_late_for(what)

    def _too_late_for(self, what: str) -> CellError:
        code = self.launcher.returncode
        return (CellError if code else MissedError)(f"the job ended with {code} before {what}")

    def wait_for_moment(self, task: str, moment: str) -> None:
        """Waits for one of TIMES; at SAVING, the chief is stopped in the middle of a checkpoint."""
        if moment == cells.START:
            self.wait_for(lambda: self._has_begun(task), f"first line of {task}")
        elif moment == cells.SAVING:
            self._stop_while_saving()
        elif moment == cells.FIGURES and task != MASTER:
            self.wait_for(lambda: self.reached() >= STEPS, "last step")
        elif moment == cells.FIGURES:
            self.wait_for(lambda: "\nevaluating " in self.log(self.chief), "evaluation")
        else:
            self.wait_for(lambda: self.reached() >= CHECKPOINT_STEPS, "mid-run")

    def _has_begun(self, task: str) -> bool:
        if task == LAUNCHER:
            return bool(self.run_ids()) and bool(agent_pids(self.run_ids()[-1]))
        if task == cells.AGENT:  # All tasks run: one that never ran would not be started again.
            runs = [RunFolder(self.state / run_id) for run_id in self.run_ids()[-1:]]
            states = [row["state"] for run in runs for row in run.status()["tasks"]]
            return bool(states) and set(states) == {"running"}
        return bool(self.log(self.label(task)))

    def _stop_while_saving(self) -> None:
        pid, thread = self.pid(MASTER), threading.get_native_id()
        before = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, -15)  # what it waits for lasts milliseconds
        try:
            for _ in self._while_it_runs(0.0005):
                if self._is_half_written():
                    stop_process(pid)
                    if self._is_half_written():
                        return
                    os.kill(pid, signal.SIGCONT)
        finally:
            os.setpriority(os.PRIO_PROCESS, thread, before)
        raise self._too_late_for("a checkpoint was seen half written")

    def _is_half_written(self) -> bool:
        return any("temp" in path.name for path in self.output.glob("model.ckpt-[1-9]*"))

    def end(self, meanwhile: Callable[[], None] = lambda: None) -> int:
        """Waits for the end of the launcher and returns its exit code.

        Raises:
          CellError: it has not ended within the job's limits.
        """
        for _ in self._while_it_runs(0.05):
            meanwhile()
        return self.launcher.wait()

    def processes(self) -> dict[int, str]:
        """Returns every process of the job, by its marks or by its folder: pid -> command line."""
        found = {pid: line for pid, line in processes_naming(f"{self.folder}/").items()}
        for run_id in self.run_ids():
            found |= processes_of(run_id)
        found.pop(os.getpid(), None)
        return found

    def print_lines(self, count: int) -> None:
        """Writes lines to the output of the job's chief, for its agent to read and log."""
        line = b"# a line that the task did not print\n"
        output = os.open(f"/proc/{self.pid(MASTER)}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        with open(output, "wb", 0) as file, contextlib.suppress(BrokenPipeError):
            file.write(count * line)

    def kill(self) -> None:
        """Kills what is left of the job."""
        for process in self._launchers:
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)


def _numbers(pattern: "re.Pattern[str]", text: str) -> list[int]:
    return [int(found.replace(",", "") or 0) for found in pattern.findall(text)]


def run(words: Sequence[object]) -> None:
    """Runs a command of the system.

    Raises:
      CellError: it failed; with what it prints.
    """
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise CellError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
