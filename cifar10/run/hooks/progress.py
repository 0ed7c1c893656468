"""What training shows and keeps of its steps: progress lines, curves and rows of metrics."""

import dataclasses
import time
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.output.history import History, rounded_figures
from cifar10.output.progress import ProgressLine, TrainingStatus
from cifar10.run.hooks import summaries
from cifar10.run.job import Job
from cifar10.schema import TRAIN
from cifar10.step.training_step import StepReport

_LIVE_SECS = 0.25  # between two updates of the live line
_ROW_SECS = 15.0  # the history gets a row at least this often ...
_ROWS = 100  # ... and after each hundredth of the run, but at most once a second


class StepClock:
    """Measures the seconds spent on training steps, without those of validation.

    Args:
      seconds: seconds to begin with.

    Attributes:
      starts: how often the clock has been started.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._since: Optional[float] = None
        self.starts = 0

    def run(self) -> bool:
        """Starts the clock if it is stopped; returns whether it was."""
        if self._since is not None:
            return False
        self._since = time.perf_counter()
        self.starts += 1
        return True

    def pause(self) -> None:
        """Stops the clock."""
        self._seconds = self.seconds
        self._since = None

    @property
    def seconds(self) -> float:
        """Seconds that the clock has run."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        return self._seconds + running


class _Interval:
    """Sums over steps, and a moment since which their speed is measured, as the clock showed it."""

    def __init__(self, seconds: float = 0.0, since: Optional[StepReport] = None) -> None:
        self.seconds, self.since = seconds, since
        self.steps, self._loss, self._accuracy = 0, 0.0, 0.0

    def add(self, report: StepReport) -> None:
        self.steps += 1
        self._loss += report.loss
        self._accuracy += report.accuracy
        self.last = report

    def figures(self, seconds: float) -> dict[str, float]:
        """Returns the means up to now; without a moment since which it is measured, no speed."""
        found = {
            "loss": self._loss / self.steps,
            "accuracy": self._accuracy / self.steps,
            "learning_rate": self.last.learning_rate,
        }
        if self.since:
            images = self.last.examples_seen - self.since.examples_seen
            found["images_per_sec"] = images / max(seconds - self.seconds, 1e-9)
        return found


class Progress:
    """Shows means over the last steps, and adds them to the history as rows for the curves.

    The first step of a session also builds kernels and fills buffers, so it is not measured.

    Args:
      line: the line that shows the means.
      history: the history that gets a row of means.
      job: the job that is trained.

    Attributes:
      history: the argument `history`.
      clock: the clock that measures the time of the steps.
      say: a function that prints a line, above the live one.
      steps: the number of steps that this process has taken.
    """

    def __init__(self, line: ProgressLine, history: History, job: Job) -> None:
        self.history, self.clock = history, StepClock(history.seconds)
        self._line, self._job, self.say = line, job, line.message
        self.steps = 0
        self.begin()

    def begin(self) -> None:
        """Measures anew, since a new session begins from a checkpoint."""
        self._rows: Optional[_Interval] = None
        self._shows: Optional[_Interval] = None

    def step_begins(self) -> None:
        """Starts the clock, after a pause for a validation."""
        if self.clock.run() and self._job.own_examples:
            self.begin()  # Other replicas continued during the pause.

    def add(self, report: StepReport) -> None:
        """Updates the live line or adds a row to the history when it is due."""
        self.steps += 1
        seconds = self.clock.seconds
        if self._rows is None or self._shows is None:
            self._rows, self._shows = _Interval(seconds, report), _Interval(seconds, report)
            return
        self._rows.add(report)
        self._shows.add(report)
        if self._line.live and seconds - self._shows.seconds >= _LIVE_SECS:
            self._line.update(self._status(self._shows))
            self._shows = _Interval(seconds, report)
        if self._row_is_due(self._rows, seconds):
            self._add_row(self._rows)

    def finish(self) -> None:
        """Adds the row of the last steps."""
        if self._rows and self._rows.steps:
            self._add_row(self._rows)
            self.history.save()

    def _row_is_due(self, rows: _Interval, seconds: float) -> bool:
        log_steps = self._job.config.log_steps
        if log_steps is not None:
            return rows.steps >= log_steps
        elapsed, share = seconds - rows.seconds, self._job.total_steps / _ROWS
        return elapsed >= _ROW_SECS or (elapsed >= 1.0 and rows.steps >= share)

    def _add_row(self, rows: _Interval) -> None:
        status = self._status(rows)
        row = {**dataclasses.asdict(status), "seconds": self.clock.seconds}
        del row["seconds_left"]
        if row["own_images_per_sec"] is None:
            del row["own_images_per_sec"]
        self.history.train.append(rounded_figures(row))
        self._rows = _Interval(self.clock.seconds, rows.last)
        if not self._line.live:
            self._line.update(status)

    def _status(self, interval: _Interval) -> TrainingStatus:
        last, own, now = interval.last, self._job.own_examples, self.clock.seconds
        seconds, since = max(now - interval.seconds, 1e-9), interval.since
        pace = (last.step - since.step) / seconds if since else 0.0  # of the whole job, a second
        return TrainingStatus(
            step=last.step,
            epoch=last.examples_seen / self._job.num_examples,
            own_images_per_sec=own and interval.steps * own / seconds,
            seconds_left=(self._job.total_steps - last.step) / pace if pace > 0 else None,
            **interval.figures(now),
        )


class MetricRows:
    """Writes a row of step 1, of each multiple of --summary-steps, and of the last step.

    Each goes to metrics.jsonl and to TensorBoard. Loss and accuracy are means over the steps since
    the row before. So a run that was killed and continued has rows of the same steps as one that
    was not. If another trainer takes such a step, the next step of this process has the row.

    Args:
      progress: has the clock, and the history whose metrics.jsonl gets the rows.
      job: the job that is trained.
    """

    def __init__(self, progress: Progress, job: Job) -> None:
        self._progress, self._job = progress, job
        self._every = job.config.steps_between_rows(job.total_steps)
        self._folder = job.config.log_folder(TRAIN)
        self._starts = 0
        self.begin(0)

    def begin(self, step: int) -> None:
        """Begins the means anew, in a session that begins at a checkpoint of `step`."""
        self._written, self._interval = step, _Interval()

    def add(self, report: StepReport) -> None:
        """Writes a row if it is due."""
        rows, clock = self._interval, self._progress.clock
        rows.add(report)
        if clock.starts != self._starts and self._job.own_examples:
            rows.since = None  # Other replicas continued during the pause.
        self._starts = clock.starts
        if not self._written or report.step // self._every > self._written // self._every:
            self._write()
        if not self._interval.since:  # The first step also builds kernels: it is not measured.
            self._interval.seconds, self._interval.since = clock.seconds, report

    def finish(self) -> None:
        """Writes the row of the last step, and all rows to TensorBoard's file."""
        if self._interval.steps:
            self._write()
        summaries.writer(self._folder).flush()

    def _write(self) -> None:
        seconds, last = self._progress.clock.seconds, self._interval.last
        figures = self._interval.figures(seconds)
        values = [tf.Summary.Value(tag=tag, simple_value=one) for tag, one in figures.items()]
        summaries.writer(self._folder).add_summary(tf.Summary(value=values), last.step)
        figures.update(epoch=last.examples_seen / self._job.num_examples, seconds=seconds)
        self._progress.history.metrics.add(TRAIN, last.step, figures)
        self.begin(last.step)
