"""Session hooks: when training ends early, and what comes between a checkpoint and validation."""

import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10 import training_step
from cifar10.errors import TrainingOver
from cifar10.history import History
from cifar10.stopping import Stay, StopRequest
from cifar10.training_step import Report


class StepClock:
    """Seconds spent on training steps; stands still while a checkpoint is validated."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._since: Optional[float] = None

    def run(self) -> bool:
        """Starts the clock, if it stands; returns whether it stood."""
        if self._since is not None:
            return False
        self._since = time.perf_counter()
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


class StopHook(tf.train.SessionRunHook):
    """Ends training after the step in which a signal came.

    Args:
      stop: says whether a signal came.
      stay: how much longer the master needs this replica's gradients; None: not at all.
    """

    def __init__(self, stop: StopRequest, stay: Optional[Stay] = None) -> None:
        self._stop, self._stay = stop, stay

    def begin(self) -> None:
        """Does not even start a session when the signal came before."""
        self._stop.check()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Lets the session close, which saves a checkpoint."""
        if self._stop.requested if self._stay is None else self._stay.is_over:
            run_context.request_stop()


class StopEvaluationHook(tf.train.SessionRunHook):
    """Breaks an evaluation off when a signal comes; there is nothing to save."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def before_run(self, run_context: Any) -> None:
        """Raises Stopped."""
        self._stop.check()


class TimeLimitHook(tf.train.SessionRunHook):
    """Ends training at a point in time (`time.monotonic`), as if it had reached its last step.

    Attributes:
      reached: whether it did.
    """

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.reached = False

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Lets the session close, which saves a checkpoint and validates it."""
        if time.monotonic() >= self._deadline:
            self.reached = True
            run_context.request_stop()


class FollowChiefHook(tf.train.SessionRunHook):
    """Ends a worker's training at the last step, or when the chief's has ended before.

    Does not even begin if training is over already.

    Args:
      total_steps: global step at which training ends at the latest.
    """

    def __init__(self, total_steps: int) -> None:
        self._total_steps = total_steps

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        graph = tf.get_default_graph()
        self._report = graph.get_tensor_by_name(f"{training_step.REPORT}:0")
        self._before = (
            tf.train.get_global_step(),
            graph.get_tensor_by_name(f"{training_step.OVER}:0"),
        )

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Raises TrainingOver instead of training a step beyond the end."""
        step, over = session.run(self._before)
        if over or step >= self._total_steps:
            raise TrainingOver(int(step))

    def before_run(self, run_context: Any) -> Any:
        """Asks whether training is over."""
        return tf.train.SessionRunArgs(self._report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends at the last step, or with the chief."""
        report = Report.of(run_values.results)
        if report.over or report.step >= self._total_steps:
            run_context.request_stop()


class PauseListener(tf.train.CheckpointSaverListener):
    """Comes before validation: stops the clock, keeps the history, ends here on a signal.

    Args:
      clock: times the steps.
      history: to be kept.
      stop: says whether a signal came.
      last: is called once the last checkpoint is whole, before it is validated.
    """

    def __init__(
        self,
        clock: StepClock,
        history: History,
        stop: StopRequest,
        last: Callable[[], None],
    ) -> None:
        self._clock, self._history, self._stop, self._last = clock, history, stop, last

    def after_save(self, session: Any, global_step_value: int) -> None:
        """The checkpoint is whole: what follows may take its time or be left out."""
        self._clock.pause()
        self._history.save()
        self._stop.check()

    def end(self, session: Any, global_step_value: int) -> None:
        """Leaves the last validation out when a signal ended training."""
        self._stop.check()
        self._last()
