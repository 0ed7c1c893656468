"""Runs a job through the launcher for some seconds of steady training, and measures it.

Every task prints its resource use (`benchmarks.scaling.task`), and each trainer prints the progress
lines of cifar10_main.py. The job is stopped as soon as there are enough of both; nothing is
validated or exported.
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
# Settings that the measurement chooses itself: output folders, start and end of training, logging.
_OURS = {
    "output_dir",
    "log_dir",
    "train_steps",
    "train_epochs",
    "max_minutes",
    "early_stopping_epochs",
    "stop_at_accuracy",
    "init_checkpoint",
    "checkpoint_steps",
    "log_steps",
    "verbose",
}


class Line(NamedTuple):
    """A progress line of a trainer: seconds on the clock when it came, and its global step."""

    secs: float
    step: int


class Sample(NamedTuple):
    """The resources that a task had used at a time, in seconds on the clock."""

    secs: float
    used: Used


_Timed = TypeVar("_Timed", Line, Sample)


@dataclasses.dataclass(frozen=True)
class Run:
    """A job to measure.

    Attributes:
      cluster: the tasks and their hosts; a master alone is a single process.
      config: the training settings.
      seconds: least duration of steady training, in seconds.
      log_steps: steps of a trainer between two of its progress lines.
      min_lines: least number of progress lines of each trainer in steady training.
      transport: how the launcher reaches the hosts.
    """

    cluster: Cluster
    config: TrainConfig
    seconds: float
    log_steps: int = 5
    min_lines: int = 5
    transport: Transport = TRANSPORT

    @property
    def trainers(self) -> int:
        """The number of processes that train."""
        return self.cluster.count(*LEADS, "worker")


@dataclasses.dataclass(frozen=True)
class Figures:
    """The figures of a measured job.

    Attributes:
      images_per_sec: images/s of the whole job.
      step_secs: median seconds of a trainer's step; mean over the trainers.
      jitter: standard deviation of a step's time divided by its median, estimated from quartiles;
        mean over the trainers.
      staleness: mean number of updates by others between two updates of a trainer; 0 if updates are
        synchronous.
      cpu_cores: task -> number of cores that the task kept busy.
      wire_bytes: bytes per second sent between hosts, summed over the hosts.
      loopback_bytes: bytes per second sent within hosts, summed over the hosts.
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
        """The number of cores that all tasks together kept busy."""
        return sum(self.cpu_cores.values())

    @property
    def server_cores(self) -> float:
        """The number of cores that the parameter servers together kept busy."""
        return sum(cores for task, cores in self.cpu_cores.items() if task.startswith("ps/"))

    @property
    def sent_bytes(self) -> float:
        """Bytes per second sent between and within hosts."""
        return self.wire_bytes + self.loopback_bytes


def words_of(config: TrainConfig, leave_out: set[str]) -> list[str]:
    """Returns the flags that give the settings of `config` but those named in `leave_out`.

    A recipe is not among them: its settings are, and its file may be gone or elsewhere.
    """
    values = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in {*leave_out, "recipe"} and config.is_set(field.name)
    }
    return [f"{flag_name(name)}={value}" for name, value in values.items()]


def measure(run: Run) -> Figures:
    """Runs a job and measures it.

    Raises:
      BenchmarkError: the job ended before it was measured; the message gives the reason.
      LaunchError: the job could not be started.
      KeyboardInterrupt: the user pressed Ctrl-C.
    """
    words = [
        *words_of(run.config, _OURS),
        f"--train-steps={_FOREVER}",
        f"--checkpoint-steps={_FOREVER}",
        f"--log-steps={run.log_steps}",
    ]
    watch = Watch(run)
    # A short stop: there is nothing to save, and a synchronous worker that waits for a master that
    # has ended must be killed.
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
    """Returns the steps between two progress lines that give about four lines a second."""
    return max(1, round(_LINE_SECS / step_secs))


def describe(cluster: Cluster) -> str:
    """Counts the tasks of each type: `1 master, 2 worker, 1 ps`."""
    kinds = [kind for kind in (*LEADS, "worker", "ps") if cluster.count(kind)]
    return ", ".join(f"{cluster.count(kind)} {kind}" for kind in kinds)


def _measured(job: Job) -> Job:
    """Returns the job with each task run by benchmarks/scaling/task.py."""
    tasks = [
        dataclasses.replace(
            task, argv=(task.argv[0], "-m", "benchmarks.scaling.task", *task.argv[2:])
        )
        for task in job.tasks
    ]
    return dataclasses.replace(job, tasks=tuple(tasks))


class Watch(Display):
    """Reads the output of the tasks, and ends the job once that is enough for its figures.

    Args:
      run: the job that is measured.

    Attributes:
      has_enough: whether the output is enough for the figures.
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
        """Handles a line that a task has just printed; ends the job if that was enough."""
        self.take(task, host, line, time.monotonic())
        if not self.has_enough and self._is_enough():
            self.has_enough = True
            os.kill(os.getpid(), signal.SIGTERM)  # to the launcher, which is this process

    def take(self, task: str, host: str, line: str, secs: float) -> None:
        """Records a line of a task that came at the time `secs`."""
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
        """Returns the figures of the steady part of the training."""
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
        of_hosts = {self._hosts[task]: one for task, one in used.items()}  # same for all its tasks
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
        """Returns the resources that a task used per second of steady training."""
        steady = self._steady(samples)
        first, last = steady[0], steady[-1]
        secs = last.secs - first.secs
        return Used(*((after - before) / secs for before, after in zip(first.used, last.used)))
