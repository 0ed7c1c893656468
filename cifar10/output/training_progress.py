"""What training shows and keeps of its steps: progress lines, rows, TensorBoard's files."""

import time
from typing import Any, Optional

import numpy as np

from cifar10.output.event_files import add_row, take_back, writer
from cifar10.output.metrics import Metrics
from cifar10.output.progress import ProgressLine
from cifar10.schema import TRAIN

_LIVE_SECS = 0.25  # between two updates of the live line
_LINE_SECS = 15.0  # a plain line comes at least this often ...
_LINES = 100  # ... and after each hundredth of the run, but at most once a second


class TrainingProgress:
    """Shows means over the last steps, and measures the time of training without its pauses.

    Sums over all steps grow; what is shown of some steps is the difference of two sums. The first
    step of a session also builds kernels and fills buffers, so its speed is not measured.

    A chief keeps rows, too, in metrics.jsonl and for TensorBoard: of step 1, of each multiple of
    --summary-steps, and of the last step, with means over the steps since the row before. So a run
    that was killed and continued has rows of the same steps as one that was not. If another trainer
    takes such a step, the next step of this process has the row.

    Args:
      line: the line that shows the means.
      params: the parameters of the model_fn: the settings, and numbers of images and steps.
      metrics: gets the rows; None: this process keeps none.

    Attributes:
      log: a function that prints a line, above the live one.
      seconds: seconds of training so far, without those of validation.
      steps: the number of steps that this process has taken.
    """

    def __init__(self, line: ProgressLine, params: Any, metrics: Optional[Metrics] = None) -> None:
        config = params.config
        self._line, self._metrics, self._params = line, metrics, params
        self.log, self.seconds, self.steps = line.show, metrics.seconds if metrics else 0.0, 0
        # Steps, loss, accuracy; of measured steps their number, seconds, and images of the job.
        self._sums = self._shown = self._kept = np.zeros(6)
        self._since: Optional[float] = None  # when the clock was read; None: it stands
        self._every = config.steps_between_rows(line.total_steps)
        self._folder, self._row = config.log_folder(TRAIN), 0  # the step of the row before
        self.begin()

    def begin(self) -> None:
        """Measures anew, since a new session begins from a checkpoint."""
        self._last: Any = None  # the report of the step before

    def go_on_after(self, step: int) -> None:
        """Takes back what a chief kept of the steps after a checkpoint; they are taken again."""
        assert self._metrics
        self._metrics.forget_after(step)
        take_back(self._folder, step + 1)
        self._row, self._kept = step, self._sums

    def step_begins(self) -> None:
        """Starts the clock, after a pause for a validation."""
        if self._since is None:
            self._since = time.perf_counter()
            if self._params.own_examples:
                self.begin()  # Other replicas continued during the pause.

    def pause(self) -> None:
        """Stops the clock."""
        self._tick()
        self._since = None

    def add(self, report: Any) -> None:
        """Notes a step by its `StepReport`; shows the last ones and keeps a row, if that is due."""
        passed, last, self._last = self._tick(), self._last, report
        self.steps += 1
        measured = (1, passed, report.examples_seen - last.examples_seen) if last else (0, 0, 0)
        self._sums = self._sums + (1, report.loss, report.accuracy, *measured)
        if not last:
            self._shown = self._sums
        elif self._is_due():
            self._show(report)
        if not self._row or report.step // self._every > self._row // self._every:
            self._keep(report)

    def finish(self) -> None:
        """Shows the last steps, and keeps a row of the last one."""
        if self._last and (self._sums - self._shown)[3]:
            self._show(self._last)
        if self._last and (self._sums - self._kept)[0]:
            self._keep(self._last)
        self.save()

    def save(self) -> None:
        """Writes all rows to their files."""
        if self._metrics:
            self._metrics.save()
            writer(self._folder).flush()

    def _is_due(self) -> bool:
        steps, seconds, _ = (self._sums - self._shown).tolist()[3:]
        if self._line.live:
            return seconds >= _LIVE_SECS
        if self._params.config.log_steps is not None:
            return steps >= self._params.config.log_steps
        is_share = seconds >= 1 and steps >= self._line.total_steps / _LINES
        return is_share or seconds >= _LINE_SECS

    def _show(self, report: Any) -> None:
        metrics = self._means(report, self._shown)
        left = max(0.0, self._line.total_epochs * self._params.num_examples - report.examples_seen)
        rate = metrics["images_per_sec"]  # 0 after a step that was told of the end
        status = {"step": report.step, "epoch": self._epoch(report), **metrics}
        self._line.show({**status, "seconds_left": left / rate if rate else None})
        self._shown = self._sums

    def _keep(self, report: Any) -> None:
        if self._metrics:
            metrics = self._means(report, self._kept)
            add_row(self._folder, report.step, metrics)
            row = {"epoch": self._epoch(report), **metrics, "seconds": self.seconds}
            self._metrics.add(TRAIN, report.step, **row)
        self._row, self._kept = report.step, self._sums

    def _means(self, report: Any, since: Any) -> dict[str, float]:
        """Returns the means over the steps after earlier sums; no speed if none was measured."""
        steps, loss, accuracy, measured, seconds, images = (self._sums - since).tolist()
        found = {"loss": loss / steps, "accuracy": accuracy / steps}
        found["learning_rate"] = report.learning_rate
        if measured:
            found["images_per_sec"] = images / seconds
            if self._params.own_examples:
                found["own_images_per_sec"] = measured * self._params.own_examples / seconds
        return found

    def _epoch(self, report: Any) -> float:
        """Returns how often training has seen all images after a step."""
        return float(report.examples_seen / self._params.num_examples)

    def _tick(self) -> float:
        """Adds the time since the clock was read, if it runs, and returns it."""
        now = time.perf_counter()
        passed = 0.0 if self._since is None else now - self._since
        self.seconds, self._since = self.seconds + passed, now
        return passed
