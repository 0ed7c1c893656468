"""Records what the tasks of a job print, and computes figures from its steady part."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional, TypeVar

from benchmarks.scaling.measured_run import Figures, Run
from benchmarks.scaling.task import Used, read_used
from launch.record.progress import read_progress

_WARM_UP_LINES = 2


class Line(NamedTuple):
    """A progress line of a trainer: seconds on the clock when it came, and its global step."""

    secs: float
    step: int


class Sample(NamedTuple):
    """The resources that a task had used at a time, in seconds on the clock."""

    secs: float
    used: Used


_Timed = TypeVar("_Timed", Line, Sample)


class Recording:
    """What the tasks of a job have printed in one condition.

    Args:
      run: the job that is measured.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lines: dict[str, list[Line]] = {}
        self._used: dict[str, list[Sample]] = {}
        self._hosts: dict[str, str] = {}
        self._began: Optional[float] = None

    def take(self, task: str, host: str, line: str, secs: float) -> None:
        """Records a line of a task that came at the time `secs`."""
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

    def is_enough(self, secs: float) -> bool:
        """Whether, at the time `secs`, enough is recorded for the figures."""
        if self._began is None or secs < self._began + self._run.seconds:
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
