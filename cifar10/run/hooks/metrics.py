"""Writes training's figures to TensorBoard and to metrics.jsonl."""

from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.output.history import History
from cifar10.run.hooks.summaries import writer
from cifar10.run.hooks.training import StepClock
from cifar10.run.job import Job
from cifar10.schema import TRAIN
from cifar10.step import training_step
from cifar10.step.training_step import StepReport


class MetricsHook(tf.train.SessionRunHook):
    """Writes a row of step 1, of each multiple of `steps`, and of the last step.

    Loss and accuracy are means over the steps since the row before. So a run that was killed and
    continued has rows of the same steps as one that was not. If another trainer takes such a step,
    the next step of this process has the row instead.

    Args:
      history: the history, whose metrics.jsonl gets the rows.
      clock: the clock that measures the time of the steps.
      job: the job that is trained.
      steps: the number of steps between two rows.
    """

    def __init__(self, history: History, clock: StepClock, job: Job, steps: int) -> None:
        self._history, self._clock, self._job, self._steps = history, clock, job, steps
        self._folder = job.config.log_folder(TRAIN)
        self._sums: list[tuple[float, float]] = []  # (loss, accuracy) of each step since the row
        self._speed_from: Optional[tuple[float, int]] = None  # (seconds, images seen) at a step
        self._starts = 0

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        names = (training_step.LOSS, training_step.ACCURACY, training_step.REPORT)
        graph = tf.get_default_graph()
        self._fetches = [graph.get_tensor_by_name(f"{name}:0") for name in names]
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads the global step; the means begin anew, since the session begins at a checkpoint."""
        self._written = int(session.run(self._global_step))
        self._sums, self._speed_from = [], None

    def before_run(self, run_context: Any) -> Any:
        """Requests loss, accuracy and report of the step."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes a row if it is due."""
        loss, accuracy, report = run_values.results
        self._report = StepReport.of(report)
        self._sums.append((float(loss), float(accuracy)))
        if self._clock.starts != self._starts and self._job.own_examples:
            self._speed_from = None  # Other replicas continued during the pause.
        self._starts = self._clock.starts
        if not self._written or self._round(self._report.step) > self._round(self._written):
            self._write()
        if self._speed_from is None:  # The first step also builds kernels, so it is not measured.
            self._speed_from = (self._clock.seconds, self._report.examples_seen)

    def end(self, session: Any) -> None:
        """Writes the row of the last step."""
        if self._sums:
            self._write()

    def _write(self) -> None:
        report, count = self._report, len(self._sums)
        figures = {
            "loss": sum(loss for loss, _ in self._sums) / count,
            "accuracy": sum(accuracy for _, accuracy in self._sums) / count,
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
        self._written, self._sums, self._speed_from = report.step, [], None

    def _round(self, step: int) -> int:
        return step // self._steps
