"""The hook that shows the progress of training and records it for the curves."""

import dataclasses
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.output.digits import rounded_figures
from cifar10.output.history import History
from cifar10.output.progress.line import ProgressLine, TrainingStatus
from cifar10.run.hooks.training import StepClock
from cifar10.run.job import Job
from cifar10.step import training_step
from cifar10.step.training_step import StepReport

_LIVE_SECS = 0.25  # between two updates of the live line
_ROW_SECS = 15.0  # the history gets a row at least this often ...
_ROWS = 100  # ... and after each hundredth of the run, but at most once a second


@dataclasses.dataclass
class _Interval:
    """Sums over the steps since the last line."""

    started: float  # seconds on the `StepClock`
    seen_before: int
    step_before: int
    steps: int = 0
    loss: float = 0.0
    accuracy: float = 0.0

    def add(self, loss: float, accuracy: float) -> None:
        self.steps += 1
        self.loss += float(loss)
        self.accuracy += float(accuracy)


class ProgressHook(tf.train.SessionRunHook):
    """Shows means over the last steps, and adds them to the history.

    Args:
      progress: the line that shows the means.
      history: the history that gets a row of means.
      clock: the clock that measures the time of the steps.
      job: the job that is trained.

    Attributes:
      steps: the number of steps that this process has taken.
    """

    def __init__(
        self,
        progress: ProgressLine,
        history: History,
        clock: StepClock,
        job: Job,
    ) -> None:
        self._progress, self._history, self._clock = progress, history, clock
        self._job = job
        self._rows: Optional[_Interval] = None
        self._shows: Optional[_Interval] = None
        self._report = StepReport(0, 0, 0.0, False)
        self.steps = 0

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        names = (training_step.LOSS, training_step.ACCURACY, training_step.REPORT)
        graph = tf.get_default_graph()
        self._fetches = [graph.get_tensor_by_name(f"{name}:0") for name in names]

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Restarts the measurement, since a new session begins from a checkpoint."""
        self._rows = self._shows = None

    def before_run(self, run_context: Any) -> Any:
        """Requests loss, accuracy and report of the step."""
        if self._clock.run() and self._job.own_examples:
            # Other replicas continued during the pause, so the measurement restarts.
            self._rows = self._shows = None
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Updates the live line or adds a row to the history when it is due."""
        loss, accuracy, report = run_values.results
        self._report = StepReport.of(report)
        self.steps += 1
        seconds = self._clock.seconds
        if self._rows is None or self._shows is None:
            # The first step also builds kernels and fills buffers, so it is not measured.
            self._rows, self._shows = self._new_interval(), self._new_interval()
            return
        self._rows.add(loss, accuracy)
        self._shows.add(loss, accuracy)
        if self._progress.live and seconds - self._shows.started >= _LIVE_SECS:
            self._progress.update(self._status(self._shows))
            self._shows = self._new_interval()
        if self._row_is_due(self._rows, seconds):
            self._add_row(self._rows)

    def end(self, session: Any) -> None:
        """Adds the row of the last steps."""
        if self._rows is not None and self._rows.steps:
            self._add_row(self._rows)
            self._history.save()

    def _new_interval(self) -> _Interval:
        return _Interval(self._clock.seconds, self._report.examples_seen, self._report.step)

    def _row_is_due(self, rows: _Interval, seconds: float) -> bool:
        log_steps = self._job.config.log_steps
        if log_steps is not None:
            return rows.steps >= log_steps
        elapsed = seconds - rows.started
        share = self._job.total_steps / _ROWS
        return elapsed >= _ROW_SECS or (elapsed >= 1.0 and rows.steps >= share)

    def _add_row(self, rows: _Interval) -> None:
        status = self._status(rows)
        row = dataclasses.asdict(status)
        del row["seconds_left"]
        if row["own_images_per_sec"] is None:
            del row["own_images_per_sec"]
        self._history.train.append(rounded_figures({**row, "seconds": self._clock.seconds}))
        self._rows = self._new_interval()
        if not self._progress.live:
            self._progress.update(status)

    def _status(self, interval: _Interval) -> TrainingStatus:
        step, seen = self._report.step, self._report.examples_seen
        seconds = max(self._clock.seconds - interval.started, 1e-9)
        left, own = self._job.total_steps - step, self._job.own_examples
        pace = (step - interval.step_before) / seconds  # steps of the whole job a second
        return TrainingStatus(
            step=step,
            epoch=seen / self._job.num_examples,
            loss=interval.loss / interval.steps,
            accuracy=interval.accuracy / interval.steps,
            learning_rate=self._report.learning_rate,
            images_per_sec=(seen - interval.seen_before) / seconds,
            own_images_per_sec=own and interval.steps * own / seconds,
            seconds_left=left / pace if pace > 0 else None,
        )
