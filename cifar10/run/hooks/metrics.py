"""Writes training's figures to TensorBoard and to metrics.jsonl."""

from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.output.history import History
from cifar10.run.hooks.progress import StepClock
from cifar10.run.hooks.summaries import writer
from cifar10.run.job import Job
from cifar10.schema import TRAIN
from cifar10.step.training_step import StepReport


class MetricRows:
    """Writes a row of step 1, of each multiple of `every`, and of the last step.

    Loss and accuracy are means over the steps since the row before. So a run that was killed and
    continued has rows of the same steps as one that was not. If another trainer takes such a step,
    the next step of this process has the row instead.

    Args:
      history: the history, whose metrics.jsonl gets the rows.
      clock: the clock that measures the time of the steps.
      job: the job that is trained.
      every: the number of steps between two rows.
    """

    def __init__(self, history: History, clock: StepClock, job: Job, every: int) -> None:
        self._history, self._clock, self._job, self._every = history, clock, job, every
        self._folder = job.config.log_folder(TRAIN)
        self._starts = 0
        self.begin(0)

    def begin(self, step: int) -> None:
        """Begins the means anew, in a session that begins at a checkpoint of `step`."""
        self._written = step
        self._reports: list[StepReport] = []  # of the steps since the row before
        self._speed_from: Optional[tuple[float, int]] = None  # (seconds, images seen) at a step

    def add(self, report: StepReport) -> None:
        """Writes a row if it is due."""
        self._reports.append(report)
        if self._clock.starts != self._starts and self._job.own_examples:
            self._speed_from = None  # Other replicas continued during the pause.
        self._starts = self._clock.starts
        if not self._written or report.step // self._every > self._written // self._every:
            self._write()
        if self._speed_from is None:  # The first step also builds kernels, so it is not measured.
            self._speed_from = (self._clock.seconds, report.examples_seen)

    def finish(self) -> None:
        """Writes the row of the last step, and all rows to TensorBoard's file."""
        if self._reports:
            self._write()
        writer(self._folder).flush()

    def _write(self) -> None:
        report, count = self._reports[-1], len(self._reports)
        figures = {
            "loss": sum(one.loss for one in self._reports) / count,
            "accuracy": sum(one.accuracy for one in self._reports) / count,
            "learning_rate": report.learning_rate,
        }
        if self._speed_from is not None:
            since, seen = self._speed_from
            seconds = max(self._clock.seconds - since, 1e-9)
            figures["images_per_sec"] = (report.examples_seen - seen) / seconds
        values = [tf.Summary.Value(tag=tag, simple_value=one) for tag, one in figures.items()]
        writer(self._folder).add_summary(tf.Summary(value=values), report.step)
        place = {
            "epoch": report.examples_seen / self._job.num_examples,
            "seconds": self._clock.seconds,
        }
        self._history.metrics.add(TRAIN, report.step, {**figures, **place})
        self.begin(report.step)
