"""Shows the progress of training and records it for the curves."""

import dataclasses
import time
from typing import Optional

from cifar10.output.digits import rounded_figures
from cifar10.output.history import History
from cifar10.output.progress import ProgressLine, TrainingStatus, format_duration
from cifar10.run.job import Job
from cifar10.step.training_step import StepReport

_MEASURED_SECS = 10.0  # of steps, for an estimate of the rest
_LONG_SECS = 600.0  # for a shorter run, no estimate is printed
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
    """Sums over the steps since a report, which came when the clock showed `started` seconds."""

    def __init__(self, started: float, since: StepReport) -> None:
        self.started, self.since = started, since
        self.steps, self.loss, self.accuracy = 0, 0.0, 0.0

    def add(self, report: StepReport) -> None:
        self.steps += 1
        self.loss += report.loss
        self.accuracy += report.accuracy


class Progress:
    """Shows means over the last steps, and adds them to the history as rows for the curves.

    The first step of a session also builds kernels and fills buffers, so it is not measured.

    Args:
      line: the line that shows the means.
      history: the history that gets a row of means.
      job: the job that is trained.
      says_duration: whether to say once how long the rest of a long run takes, as measured in its
        first steps, unless it has a time limit.

    Attributes:
      history: the argument `history`.
      clock: the clock that measures the time of the steps.
      say: a function that prints a line, above the live one.
      steps: the number of steps that this process has taken.
    """

    def __init__(
        self, line: ProgressLine, history: History, job: Job, says_duration: bool = False
    ) -> None:
        self.history, self.clock = history, StepClock(history.seconds)
        self._line, self._job, self.say = line, job, line.message
        self._says_duration = says_duration and job.config.max_minutes is None
        self.steps = 0
        self.begin()

    def begin(self) -> None:
        """Measures anew, since a new session begins from a checkpoint."""
        self._rows: Optional[_Interval] = None
        self._shows: Optional[_Interval] = None
        self._first: Optional[_Interval] = None  # since the first step of the session

    def step_begins(self) -> None:
        """Starts the clock, after a pause for a validation."""
        if self.clock.run() and self._job.own_examples:
            self._rows = self._shows = None  # Other replicas continued during the pause.

    def add(self, report: StepReport) -> None:
        """Updates the live line or adds a row to the history when it is due."""
        self._report = report
        self.steps += 1
        seconds = self.clock.seconds
        if self._rows is None or self._shows is None or self._first is None:
            self._rows, self._shows = self._new_interval(), self._new_interval()
            self._first = self._first or self._new_interval()
            return
        for interval in (self._rows, self._shows, self._first):
            interval.add(report)
        if self._line.live and seconds - self._shows.started >= _LIVE_SECS:
            self._line.update(self._status(self._shows))
            self._shows = self._new_interval()
        if self._row_is_due(self._rows, seconds):
            self._add_row(self._rows)
        if self._says_duration and seconds - self._first.started >= _MEASURED_SECS:
            self._says_duration = False
            self._say_duration(self._first)

    def finish(self) -> None:
        """Adds the row of the last steps."""
        if self._rows is not None and self._rows.steps:
            self._add_row(self._rows)
            self.history.save()

    def _new_interval(self) -> _Interval:
        return _Interval(self.clock.seconds, self._report)

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
        self.history.train.append(rounded_figures({**row, "seconds": self.clock.seconds}))
        self._rows = self._new_interval()
        if not self._line.live:
            self._line.update(status)

    def _status(self, interval: _Interval) -> TrainingStatus:
        step, seen = self._report.step, self._report.examples_seen
        seconds = max(self.clock.seconds - interval.started, 1e-9)
        left, own = self._job.total_steps - step, self._job.own_examples
        pace = (step - interval.since.step) / seconds  # steps of the whole job a second
        return TrainingStatus(
            step=step,
            epoch=seen / self._job.num_examples,
            loss=interval.loss / interval.steps,
            accuracy=interval.accuracy / interval.steps,
            learning_rate=self._report.learning_rate,
            images_per_sec=(seen - interval.since.examples_seen) / seconds,
            own_images_per_sec=own and interval.steps * own / seconds,
            seconds_left=left / pace if pace > 0 else None,
        )

    def _say_duration(self, first: _Interval) -> None:
        status, steps = self._status(first), self._job.total_steps - self._report.step
        if status.seconds_left is None or status.seconds_left < _LONG_SECS:
            return
        self.say(
            f"the remaining {steps:,} steps take about {format_duration(status.seconds_left)} at "
            f"{status.images_per_sec:,.0f} images/s, validations not included; Ctrl-C saves, and "
            "the same command continues"
        )
