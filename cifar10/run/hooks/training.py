"""Session hooks that end training, save checkpoints, and act between a save and validation."""

import contextlib
import math
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingOver
from cifar10.host.signals import Stay, StopRequest
from cifar10.step import training_step
from cifar10.step.training_step import StepReport
from cifar10.tf_internals.saver_hook import CheckpointSaver


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


class StopHook(tf.train.SessionRunHook):
    """Ends training after the step in which a signal arrived.

    Args:
      stop: knows whether a signal has arrived.
      stay: knows whether the master still needs this replica's gradients after a signal; None: it
        does not.
    """

    def __init__(self, stop: StopRequest, stay: Optional[Stay] = None) -> None:
        self._stop, self._stay = stop, stay

    def begin(self) -> None:
        """Raises Stopped if a signal arrived before the session starts."""
        self._stop.check()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends the session, so that the chief saves a checkpoint, after a signal and the stay."""
        if self._stop.requested if self._stay is None else self._stay.is_over:
            run_context.request_stop()


class StopEvaluationHook(tf.train.SessionRunHook):
    """Ends an evaluation when a signal arrives; there is nothing to save."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def before_run(self, run_context: Any) -> None:
        """Raises Stopped if a signal has arrived."""
        self._stop.check()


class TimeLimitHook(tf.train.SessionRunHook):
    """Ends training at a deadline, as if it had reached its last step.

    This hook runs before the one that saves, so that the last checkpoint contains the final
    weights. After a signal it does not change the weights, since the run is to continue as if it
    had not been stopped.

    Args:
      deadline: the time at which training ends (`time.monotonic`), in seconds.
      stop: knows whether a signal has arrived.

    Attributes:
      reached: whether the deadline has ended training.
    """

    def __init__(self, deadline: float, stop: StopRequest) -> None:
        self._deadline, self._stop = deadline, stop
        self.reached = False

    def begin(self) -> None:
        """Finds the ops for an early end in the graph that is about to run."""
        self._early_end = tf.get_collection(training_step.EARLY_END)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends the session after the deadline; the last checkpoint is then saved and validated."""
        if time.monotonic() >= self._deadline:
            self.reached = True
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Replaces the weights by the final ones if the deadline has ended training."""
        if self.reached and not self._stop.requested:
            session.run(self._early_end)


class EndAllHook(tf.train.SessionRunHook):
    """Ends the training of all replicas when the chief's ends, unless a signal ends it.

    Args:
      stop: knows whether a signal has arrived; then the other replicas wait for a new chief.
    """

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def begin(self) -> None:
        """Finds the op that ends training in the graph that is about to run."""
        self._end_all = tf.get_collection(training_step.END_ALL)

    def end(self, session: Any) -> None:
        """Tells all replicas that training is over."""
        if self._stop.requested:
            return
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
            # A parameter server that has ended knew that training is over, as all tasks then do.
            session.run(self._end_all)


class LastStepHook(tf.train.SessionRunHook):
    """Ends training at the last step, which the step itself reports.

    Estimator's own hook would fetch the step from its parameter server each time.

    Args:
      total_steps: global step at which training ends at the latest.
    """

    def __init__(self, total_steps: int) -> None:
        self._total_steps: float = total_steps

    def begin(self) -> None:
        """Finds the step's report in the graph that is about to run."""
        self._report = training_step.report_tensor()

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report."""
        return tf.train.SessionRunArgs(self._report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends at the last step, or when the chief has ended training."""
        report = StepReport.of(run_values.results)
        if report.over or report.step >= self._total_steps:
            run_context.request_stop()


class FollowChiefHook(LastStepHook):
    """Ends a worker's training at the last step, or when the chief ends training before it.

    If training is already over, the worker does not begin.

    Args:
      total_steps: global step at which training ends at the latest.
      always: whether that also holds if training has begun before this worker. If not, since only
        the chief knows of steps with other numbers of images, the chief alone ends training.
    """

    def __init__(self, total_steps: int, always: bool = True) -> None:
        super().__init__(total_steps)
        self._always = always

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        super().begin()
        over = tf.get_default_graph().get_tensor_by_name(f"{training_step.OVER}:0")
        self._before = (tf.train.get_global_step(), over)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Raises TrainingOver if training is over, instead of taking another step."""
        step, over = session.run(self._before)
        if step and not self._always:
            self._total_steps = math.inf
        if over or step >= self._total_steps:
            raise TrainingOver(int(step))


class _LastSave(tf.train.CheckpointSaverListener):
    """Records the step of the newest checkpoint."""

    step = 0

    def after_save(self, session: Any, global_step_value: int) -> None:
        self.step = global_step_value


class SaverHook(CheckpointSaver):
    """Saves like Estimator's own hook, but does not fetch the global step separately.

    The checkpoint of the last step is saved at the end of the session. So its validation comes
    after the last use of the parameter servers, and no task has to wait for it.

    Args:
      folder: the folder for the checkpoints.
      save_steps: the number of steps between two checkpoints.
      log_folder: the folder for TensorBoard's graph and marks of checkpoints; None: `folder`.

    Attributes:
      at_end: whether the session is ending.
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
        """Requests the step's report, which contains the global step."""
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


class OwnerListener(tf.train.CheckpointSaverListener):
    """Ends training before a save into a folder that another run has taken over.

    Args:
      check: function that raises TrainingError then.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Raises TrainingError if the folder is another run's."""
        self._check()


class PauseListener(tf.train.CheckpointSaverListener):
    """Saves measurements, stops the clock, and ends training on a signal, all before validation.

    Args:
      clock: the clock that measures the time of the steps.
      keep: a function that is called before a checkpoint is written, and saves the measurements up
        to it; a run that is killed after the checkpoint does not repeat these steps.
      stop: knows whether a signal has arrived.
      saver: the hook that saves checkpoints.
      last: a function that is called after the last checkpoint has been written, before its
        validation. `SaverHook` saves one at the end of the session, unless the session ends right
        after a validation.
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
        self._is_told = False

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Saves the measurements up to the checkpoint."""
        self._keep()

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Stops the clock; raises Stopped after a signal, since the checkpoint is complete."""
        self._clock.pause()
        self._stop.check()
        if self._saver.at_end:
            self._tell()

    def end(self, session: Any, global_step_value: int) -> None:
        """Raises Stopped after a signal, so that the last validation is skipped."""
        self._stop.check()
        self._tell()

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._last()
