"""Runs a job through the launcher for some seconds of steady training, and measures it.

Every task prints its resource use (`benchmarks.scaling.task`), and each trainer prints the progress
lines of cifar10_main.py. The job is stopped as soon as there are enough of both; nothing is
validated or exported.
"""

import dataclasses
import io
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Optional

from benchmarks.errors import BenchmarkError
from benchmarks.scaling.measured_run import Figures, Run
from benchmarks.scaling.recording import Recording
from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name
from launch.cluster.model import LEADS, Cluster
from launch.cluster.tasks import Job, make_job
from launch.record.progress import read_progress
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents

_FOREVER = 10**9
_STOP_SECS = 5.0
_LINE_SECS = 0.25
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
    """Runs a job and measures it in its first condition; raises what `measure_each` does."""
    (figures,) = measure_each(dataclasses.replace(run, conditions=run.conditions[:1]))
    return figures


def measure_each(run: Run) -> list[Figures]:
    """Runs a job and measures it in each of its conditions, one after the other.

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
    return watch.figures


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
    """Records the output of the tasks, and ends the job once that is enough in each condition.

    Args:
      run: the job that is measured.

    Attributes:
      figures: those of each condition that has been measured.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(io.StringIO(), live=False)
        self.figures: list[Figures] = []
        self._run = run
        self._stepping: set[str] = set()
        self._recording: Optional[Recording] = None

    @property
    def has_enough(self) -> bool:
        """Whether each condition has been measured."""
        return len(self.figures) == len(self._run.conditions)

    def task_line(self, task: str, host: str, line: str) -> None:
        """Handles a line that a task has just printed; ends the job if that was enough."""
        if self.has_enough:
            return
        if self._recording is None:
            self._start(task, host, line)
            return
        now = time.monotonic()
        self._recording.take(task, host, line, now)
        if self._recording.is_enough(now):
            self.figures.append(self._recording.figures())
            if self.has_enough:
                os.kill(os.getpid(), signal.SIGTERM)  # to the launcher, which is this process
            else:
                self._begin()

    def _start(self, task: str, host: str, line: str) -> None:
        if read_progress(line) is None:
            return
        if task not in self._stepping:
            self._stepping.add(task)
            self._run.stepping(host)
        if len(self._stepping) == self._run.trainers and self._run.may_begin():
            self._begin()

    def _begin(self) -> None:
        self._run.conditions[len(self.figures)]()
        self._recording = Recording(self._run)
