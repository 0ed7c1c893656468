"""Runs a job through the launcher for some seconds of steady training, and measures it.

Every task prints what it uses (`benchmarks.scaling.task`), and each trainer the progress lines of
cifar10_main.py. The job is stopped as soon as there is enough of both: nothing
is validated or exported.
"""

import dataclasses
import io
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional, TypeVar

from benchmarks.errors import BenchmarkError
from benchmarks.scaling.task import Used, read_used
from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name
from launch.backends.local.backend import TRANSPORT
from launch.cluster.model import LEADS, Cluster
from launch.cluster.tasks import Job, make_job
from launch.connect.transport import Transport
from launch.record.progress import read_progress
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents

_FOREVER = 10**9
_STOP_SECS = 5.0
_LINE_SECS = 0.25
_WARM_UP_LINES = 2
# What the measurement decides: where results go, when training ends, what it says meanwhile.
_OURS = {
    "output_dir",
    "log_dir",
    "train_steps",
    "train_epochs",
    "max_minutes",
    "checkpoint_steps",
    "log_steps",
    "verbose",
}


class Line(NamedTuple):
    """A progress line of a trainer: when it came, and the global step that it tells of."""

    secs: float
    step: int


class Sample(NamedTuple):
    """What a task had used at a point in time."""

    secs: float
    used: Used


_Timed = TypeVar("_Timed", Line, Sample)


@dataclasses.dataclass(frozen=True)
class Run:
    """What to measure.

    Attributes:
      cluster: its tasks; a master alone is one process.
      config: of the training.
      seconds: of steady training, at least.
      log_steps: steps of a trainer between two of its progress lines.
      min_lines: progress lines of each trainer, at least.
      transport: the way to the hosts.
    """

    cluster: Cluster
    config: TrainConfig
    seconds: float
    log_steps: int = 5
    min_lines: int = 5
    transport: Transport = TRANSPORT

    @property
    def trainers(self) -> int:
        """Processes that train."""
        return self.cluster.count(*LEADS, "worker")


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured.

    Attributes:
      images_per_sec: of the whole job.
      step_secs: of a trainer, the median; mean over the trainers.
      jitter: standard deviation of a step's time, as a share of it, by quartiles.
      staleness: updates by others between two of a trainer's own, mean over all gradients; 0 where
        updates are synchronous.
      cpu_cores: task -> cores that it kept busy.
      wire_bytes: sent from host to host a second, all hosts.
      loopback_bytes: sent within hosts a second.
    """

    images_per_sec: float
    step_secs: float
    jitter: float
    staleness: float
    cpu_cores: Mapping[str, float]
    wire_bytes: float
    loopback_bytes: float

    @property
    def busy_cores(self) -> float:
        """Cores that all tasks kept busy."""
        return sum(self.cpu_cores.values())

    @property
    def server_cores(self) -> float:
        """Cores that the parameter servers kept busy."""
        return sum(cores for task, cores in self.cpu_cores.items() if task.startswith("ps/"))

    @property
    def sent_bytes(self) -> float:
        """Sent a second, on wires and within hosts."""
        return self.wire_bytes + self.loopback_bytes


def words_of(config: TrainConfig, leave_out: set[str]) -> list[str]:
    """Returns the flags that give `config`, without those whose names are in `leave_out`."""
    values = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in leave_out and config.is_set(field.name)
    }
    return [f"{flag_name(name)}={value}" for name, value in values.items()]


def measure(run: Run) -> Figures:
    """Runs the job and measures it.

    Raises:
      BenchmarkError: it failed, or was too short; says why.
      LaunchError: it could not be started.
      KeyboardInterrupt: the user asked for the end.
    """
    words = [
        *words_of(run.config, _OURS),
        f"--train-steps={_FOREVER}",
        f"--checkpoint-steps={_FOREVER}",
        f"--log-steps={run.log_steps}",
    ]
    watch = Watch(run)
    # There is nothing to save. A worker whose synchronous step no master ends any more is killed.
    limits = dataclasses.replace(run.cluster.limits, stop_secs=_STOP_SECS)
    job = make_job(dataclasses.replace(run.cluster, limits=limits, restarts=0), words)
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_with_agents(
            job, RunFolder.create(Path(folder), job), run.transport, watch, _measured
        )
    watch.close()
    if not watch.has_enough:
        if outcome.exit_code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        why = "\n".join([outcome.reason, *outcome.details])
        raise BenchmarkError(f"a job of {describe(run.cluster)} could not be measured: {why}")
    return watch.figures()


def log_steps_for(step_secs: float) -> int:
    """Steps between two progress lines, so that there are some a second, and not hundreds."""
    return max(1, round(_LINE_SECS / step_secs))


def describe(cluster: Cluster) -> str:
    """`1 master, 2 worker, 1 ps`."""
    kinds = [kind for kind in (*LEADS, "worker", "ps") if cluster.count(kind)]
    return ", ".join(f"{cluster.count(kind)} {kind}" for kind in kinds)


def _measured(job: Job) -> Job:
    """The same tasks, each run by benchmarks/scaling/task.py."""
    tasks = [
        dataclasses.replace(
            task, argv=(task.argv[0], "-m", "benchmarks.scaling.task", *task.argv[2:])
        )
        for task in job.tasks
    ]
    return dataclasses.replace(job, tasks=tuple(tasks))


class Watch(Display):
    """Reads what the tasks print, and ends the job once that is enough.

    Args:
      run: what is measured.

    Attributes:
      has_enough: whether it was enough.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(io.StringIO(), live=False)
        self.has_enough = False
        self._run = run
        self._lines: dict[str, list[Line]] = {}
        self._used: dict[str, list[Sample]] = {}
        self._hosts: dict[str, str] = {}
        self._began: Optional[float] = None

    def task_line(self, task: str, host: str, line: str) -> None:
        """Takes a line that has just come."""
        self.take(task, host, line, time.monotonic())
        if not self.has_enough and self._is_enough():
            self.has_enough = True
            os.kill(os.getpid(), signal.SIGTERM)  # to the launcher, which is this process

    def take(self, task: str, host: str, line: str, secs: float) -> None:
        """Takes a line that came at `secs`."""
        if self.has_enough:
            return
        used, progress = read_used(line), read_progress(line)
        if used is not None:
            self._hosts[task] = host
            self._used.setdefault(task, []).append(Sample(secs, used))
        elif progress is not None:
            self._lines.setdefault(task, []).append(Line(secs, progress.step))
            ready = [one for one in self._lines.values() if len(one) >= _WARM_UP_LINES]
            if self._began is None and len(ready) == self._run.trainers:
                self._began = secs

    @property
    def is_steady(self) -> bool:
        """Whether all trainers have warmed up."""
        return self._began is not None

    def figures(self) -> Figures:
        """Returns the figures of the steady part."""
        run, lines = self._run, self._steady_lines()
        step_secs, jitters, rates = [], [], []
        for of_task in lines.values():
            gaps = [later.secs - line.secs for line, later in zip(of_task, of_task[1:])]
            median = statistics.median(gaps)
            low, _, high = statistics.quantiles(gaps, n=4)
            step_secs.append(median / run.log_steps)
            # Quartiles of a normal distribution are 1.349 standard deviations apart; a sum of n
            # steps varies sqrt(n) times as much as one of them.
            jitters.append((high - low) / 1.349 / median * run.log_steps**0.5)
            rates.append(run.config.train_batch_size * run.log_steps / median)
        used = {task: self._rates(samples) for task, samples in self._used.items()}
        of_hosts = {self._hosts[task]: one for task, one in used.items()}  # their tasks agree
        return Figures(
            images_per_sec=sum(rates),
            step_secs=statistics.mean(step_secs),
            jitter=statistics.mean(jitters),
            staleness=0.0 if run.config.sync else self._staleness(lines),
            cpu_cores={task: one.cpu_secs for task, one in used.items()},
            wire_bytes=sum(one.wire_bytes for one in of_hosts.values()),
            loopback_bytes=sum(one.loopback_bytes for one in of_hosts.values()),
        )

    def _is_enough(self) -> bool:
        if self._began is None or time.monotonic() < self._began + self._run.seconds:
            return False
        lines = self._steady_lines()
        return (
            len(lines) == self._run.trainers
            and min(map(len, lines.values())) >= self._run.min_lines
            and all(len(self._steady(samples)) >= 2 for samples in self._used.values())
        )

    def _steady_lines(self) -> dict[str, list[Line]]:
        return {task: self._steady(lines) for task, lines in self._lines.items()}

    def _steady(self, items: Sequence[_Timed]) -> list[_Timed]:
        return [one for one in items if self._began is not None and one.secs >= self._began]

    def _staleness(self, lines: Mapping[str, Sequence[Line]]) -> float:
        own = others = 0
        for of_task in lines.values():
            steps = (len(of_task) - 1) * self._run.log_steps
            own += steps
            others += of_task[-1].step - of_task[0].step - steps
        return others / own

    def _rates(self, samples: Sequence[Sample]) -> Used:
        """Returns what a task used per second."""
        steady = self._steady(samples)
        first, last = steady[0], steady[-1]
        secs = last.secs - first.secs
        return Used(*((after - before) / secs for before, after in zip(first.used, last.used)))
