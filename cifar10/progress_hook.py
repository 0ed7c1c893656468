"""The hook that shows training's figures and keeps them for the curves."""

import dataclasses
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import model_fn
from cifar10.history import History
from cifar10.hooks import StepClock
from cifar10.progress import ProgressLine, TrainingStatus

_LIVE_SECS = 0.25  # between two states of the live line
_ROW_SECS = 15.0  # a row of the history at least this often...
_ROWS = 100  # ... and at each hundredth of the run, but not within a second


@dataclasses.dataclass(frozen=True)
class RunLength:
    """How long a run is.

    Attributes:
      total_steps: global step at which training ends.
      num_examples: images in the training split.
    """

    total_steps: int
    num_examples: int


@dataclasses.dataclass
class _Interval:
    """Sums over the steps since the last line."""

    started: float  # on the clock
    seen_before: int
    steps: int = 0
    loss: float = 0.0
    accuracy: float = 0.0

    def add(self, figures: dict[str, Any]) -> None:
        self.steps += 1
        self.loss += float(figures[model_fn.LOSS])
        self.accuracy += float(figures[model_fn.ACCURACY])


class ProgressHook(tf.train.SessionRunHook):
    """Shows means over the last steps, and adds them to the history and to TensorBoard.

    Args:
      progress: shows them.
      history: keeps them.
      clock: times the steps.
      length: of the run.
      log_steps: steps between rows; None: by time and by the length of the run.
      log_dir: gets images_per_sec as a TensorBoard scalar.
    """

    def __init__(
        self,
        progress: ProgressLine,
        history: History,
        clock: StepClock,
        length: RunLength,
        log_steps: Optional[int],
        log_dir: str,
    ) -> None:
        self._progress, self._history, self._clock = progress, history, clock
        self._length, self._log_steps, self._log_dir = length, log_steps, log_dir
        self._rows: Optional[_Interval] = None
        self._shows: Optional[_Interval] = None
        self._figures: dict[str, Any] = {}

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        names = (
            model_fn.LOSS,
            model_fn.ACCURACY,
            model_fn.LEARNING_RATE,
            model_fn.STEP_AFTER,
            model_fn.SEEN_AFTER,
        )
        graph = tf.get_default_graph()
        self._fetches = {name: graph.get_tensor_by_name(f"{name}:0") for name in names}
        self._writer = tf.summary.FileWriterCache.get(self._log_dir)

    def before_run(self, run_context: Any) -> Any:
        """Asks for the figures of the step."""
        self._clock.run()
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Shows a state or adds a row when it is time."""
        self._figures = run_values.results
        seconds, seen = self._clock.seconds, int(self._figures[model_fn.SEEN_AFTER])
        if self._rows is None or self._shows is None:
            # The first step also builds kernels and fills buffers; it is no measure of speed.
            self._rows, self._shows = _Interval(seconds, seen), _Interval(seconds, seen)
            return
        self._rows.add(self._figures)
        self._shows.add(self._figures)
        if self._progress.live and seconds - self._shows.started >= _LIVE_SECS:
            self._progress.update(self._status(self._shows))
            self._shows = _Interval(seconds, seen)
        if self._row_is_due(seconds):
            self._add_row()

    def end(self, session: Any) -> None:
        """Adds the row of the last steps."""
        if self._rows is not None and self._rows.steps:
            self._add_row()
            self._history.save()

    def _row_is_due(self, seconds: float) -> bool:
        rows = self._rows
        if rows is None or self._log_steps is not None:
            return rows is not None and rows.steps >= (self._log_steps or 1)
        elapsed = seconds - rows.started
        share = self._length.total_steps / _ROWS
        return elapsed >= _ROW_SECS or (elapsed >= 1.0 and rows.steps >= share)

    def _add_row(self) -> None:
        if self._rows is None:
            return
        status, seconds = self._status(self._rows), self._clock.seconds
        row = dataclasses.asdict(status)
        del row["seconds_left"]
        self._history.train.append({**row, "seconds": seconds})
        value = tf.Summary.Value(tag="images_per_sec", simple_value=status.images_per_sec)
        self._writer.add_summary(tf.Summary(value=[value]), status.step)
        self._rows = _Interval(seconds, int(self._figures[model_fn.SEEN_AFTER]))
        if not self._progress.live:
            self._progress.update(status)

    def _status(self, interval: _Interval) -> TrainingStatus:
        seen, step = (int(self._figures[n]) for n in (model_fn.SEEN_AFTER, model_fn.STEP_AFTER))
        seconds = max(self._clock.seconds - interval.started, 1e-9)
        left = self._length.total_steps - step
        return TrainingStatus(
            step=step,
            epoch=seen / self._length.num_examples,
            loss=interval.loss / interval.steps,
            accuracy=interval.accuracy / interval.steps,
            learning_rate=float(self._figures[model_fn.LEARNING_RATE]),
            images_per_sec=(seen - interval.seen_before) / seconds,
            seconds_left=left * seconds / interval.steps,
        )
