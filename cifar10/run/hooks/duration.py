"""How long a training run takes: its amount before the first step, and then an estimate."""

from typing import Callable, Optional

from cifar10.output.progress.line import format_duration
from cifar10.run.hooks.progress import StepClock
from cifar10.run.job import Job, describe_amount
from cifar10.step.training_step import StepReport

_MEASURED_SECS = 10.0
_LONG_SECS = 600.0  # for a shorter run, an estimate is printed only if it was promised


class Duration:
    """Says once how long the rest of a long run takes, as measured in its first steps.

    It also does so for a run whose start has promised it (`describe_amount`).

    Args:
      tell: a function that shows a line to the user.
      clock: the clock that measures the time of the steps.
      job: the job that is trained.
    """

    def __init__(self, tell: Callable[[str], None], clock: StepClock, job: Job) -> None:
        self._tell, self._clock, self._job = tell, clock, job
        self._first: Optional[tuple[float, StepReport]] = None
        self._is_over = job.config.max_minutes is not None
        self._is_promised = False

    def begin(self) -> None:
        """Measures anew, since a new session begins from a checkpoint."""
        self._first = None

    def add(self, report: StepReport) -> None:
        """Says how long training takes, once enough steps are measured."""
        if self._is_over:
            return
        seconds = self._clock.seconds
        if self._first is None:  # The first step also builds kernels and fills buffers.
            self._first = (seconds, report)
            self._is_promised = describe_amount(self._job, report.step - 1) is not None
            return
        started, before = self._first
        elapsed, steps = seconds - started, report.step - before.step
        if elapsed < _MEASURED_SECS or steps < 1:
            return
        self._is_over = True
        left = self._job.total_steps - report.step
        secs = left * elapsed / steps
        if self._is_promised or secs >= _LONG_SECS:
            rate = (report.examples_seen - before.examples_seen) / elapsed
            self._tell(describe_duration(left, secs, rate))


def describe_duration(steps: int, secs: float, images_per_sec: float) -> str:
    """Returns a line about the time that the remaining steps take."""
    return (
        f"the remaining {steps:,} steps take about {format_duration(secs)} at "
        f"{images_per_sec:,.0f} images/s, validations not included; Ctrl-C saves, and the same "
        "command continues"
    )
