"""Session hooks: when training ends early, and what comes between a checkpoint and validation."""

import contextlib
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingOver
from cifar10.host.signals import Stay, StopRequest
from cifar10.step import training_step
from cifar10.step.training_step import StepReport
from cifar10.tf_internals.saver_hook import CheckpointSaver


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
        """Raises Stopped if the signal came before the session starts."""
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

    It comes before the hook that saves: the last checkpoint has the weights that a run ends with.
    After a signal it leaves them, since the run is to go on as if it had not been stopped.

    Args:
      deadline: the point in time.
      stop: says whether a signal came.

    Attributes:
      reached: whether it did.
    """

    def __init__(self, deadline: float, stop: StopRequest) -> None:
        self._deadline, self._stop = deadline, stop
        self.reached = False

    def begin(self) -> None:
        """Finds what ends training in the graph that is about to run."""
        self._early_end = tf.get_collection(training_step.EARLY_END)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Lets the session close, which saves a checkpoint and validates it."""
        if time.monotonic() >= self._deadline:
            self.reached = True
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Replaces the weights by those that a run ends with."""
        if self.reached and not self._stop.requested:
            session.run(self._early_end)


class EndAllHook(tf.train.SessionRunHook):
    """Ends the training of all replicas with the chief's, unless a signal is what ends it.

    Args:
      stop: says whether a signal came: then the others wait for the chief to come back.
    """

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def begin(self) -> None:
        """Finds what ends training in the graph that is about to run."""
        self._end_all = tf.get_collection(training_step.END_ALL)

    def end(self, session: Any) -> None:
        """Tells all replicas."""
        if self._stop.requested:
            return
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
            # A parameter server that has gone has heard of the end, as has everyone else.
            session.run(self._end_all)


class LastStepHook(tf.train.SessionRunHook):
    """Ends training at the last step, which the step itself reports.

    Estimator's own hook would fetch the step from its parameter server each time.

    Args:
      total_steps: global step at which training ends at the latest.
    """

    def __init__(self, total_steps: int) -> None:
        self._total_steps = total_steps

    def begin(self) -> None:
        """Finds the step's report in the graph that is about to run."""
        self._report = training_step.report_tensor()

    def before_run(self, run_context: Any) -> Any:
        """Asks for the report."""
        return tf.train.SessionRunArgs(self._report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends at the last step, or when the chief has ended training."""
        report = StepReport.of(run_values.results)
        if report.over or report.step >= self._total_steps:
            run_context.request_stop()


class FollowChiefHook(LastStepHook):
    """Ends a worker's training at the last step, or when the chief's has ended before.

    Does not even begin if training is over already.
    """

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        super().begin()
        over = tf.get_default_graph().get_tensor_by_name(f"{training_step.OVER}:0")
        self._before = (tf.train.get_global_step(), over)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Raises TrainingOver instead of training a step beyond the end."""
        step, over = session.run(self._before)
        if over or step >= self._total_steps:
            raise TrainingOver(int(step))


class _LastSave(tf.train.CheckpointSaverListener):
    """Notes the step of the newest checkpoint."""

    step = 0

    def after_save(self, session: Any, global_step_value: int) -> None:
        self.step = global_step_value


class SaverHook(CheckpointSaver):
    """Saves as Estimator's own hook, but asks no parameter server for the step after each step.

    The checkpoint of the last step is left to the end of the session, so that what follows it, its
    validation, comes after the last use of the parameter servers, and nobody has to wait for it.

    Args:
      folder: for the checkpoints.
      save_steps: between two of them.
      log_folder: for TensorBoard's graph and marks of checkpoints; None: where the checkpoints are.

    Attributes:
      at_end: whether the session ends.
    """

    def __init__(self, folder: str, save_steps: int, log_folder: Optional[str] = None) -> None:
        self._save_steps, self._last_save = save_steps, _LastSave()
        super().__init__(folder, save_steps, log_folder, [self._last_save])
        self.at_end = False

    def begin(self) -> None:
        """Finds the step's report in the graph that is about to run."""
        super().begin()
        self._report = training_step.report_tensor()

    def before_run(self, run_context: Any) -> Any:
        """Asks for the report, which comes with the step's answer."""
        return tf.train.SessionRunArgs(self._report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves a checkpoint that is due, unless a hook before this one has asked for the end."""
        step = StepReport.of(run_values.results).step
        is_due = step >= self._last_save.step + self._save_steps
        if is_due and not run_context.stop_requested:
            super().after_run(
                run_context, tf.train.SessionRunValues(step, run_values.options, None)
            )

    def end(self, session: Any) -> None:
        """Saves the last checkpoint."""
        self.at_end = True
        super().end(session)


class PauseListener(tf.train.CheckpointSaverListener):
    """Keeps the figures, stops the clock, and ends training on a signal, all before validation.

    Args:
      clock: times the steps.
      keep: is called before a checkpoint is written, and keeps what was measured up to it: a run
        that is killed right after it goes on from it, and measures these steps no more.
      stop: says whether a signal came.
      saver: saves.
      last: is called once the last checkpoint is whole, before it is validated. There always is
        one: a session ends after a step, whose checkpoint `SaverHook` leaves to the end.
    """

    def __init__(
        self,
        clock: StepClock,
        keep: Callable[[], None],
        stop: StopRequest,
        saver: SaverHook,
        last: Callable[[], None],
    ) -> None:
        self._clock, self._keep, self._stop = clock, keep, stop
        self._saver, self._last = saver, last

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Keeps what the checkpoint will make final."""
        self._keep()

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Stops the clock; the checkpoint is whole, so what follows may be left out on a signal."""
        self._clock.pause()
        self._stop.check()
        if self._saver.at_end:
            self._last()

    def end(self, session: Any, global_step_value: int) -> None:
        """Leaves the last validation out when a signal ended training."""
        self._stop.check()
