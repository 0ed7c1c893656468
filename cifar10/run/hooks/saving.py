"""Saves checkpoints, and does what comes before and after each of them."""

from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError
from cifar10.host import activity
from cifar10.host.activity import Activity
from cifar10.host.signals import StopRequest
from cifar10.output import checkpoints
from cifar10.run.hooks.progress import StepClock
from cifar10.step import training_step
from cifar10.step.training_step import StepReport
from cifar10.tf_internals.saving import CheckpointSaver


class Saving(tf.train.CheckpointSaverListener):
    """What comes before and after each checkpoint, and before its validation.

    Args:
      noted: what the main thread does.
      clock: the clock that measures the time of the steps.
      stop: knows whether a signal has arrived.
      output_dir: path of the output folder.
      before: functions that are called before a checkpoint is written; one that raises
        TrainingError keeps it from being written.
      last: a function that is called after the last checkpoint has been written, before its
        validation.

    Attributes:
      step: the step of the newest checkpoint.
      at_end: whether the session is ending, so that the next checkpoint is the last one.
    """

    def __init__(
        self,
        noted: Activity,
        clock: StepClock,
        stop: StopRequest,
        output_dir: str,
        before: tuple[Callable[[], None], ...],
        last: Callable[[], None],
    ) -> None:
        self._activity, self._clock, self._stop = noted, clock, stop
        self._output_dir, self._before, self._last = output_dir, before, last
        self.step, self.at_end, self._is_told = 0, False, False

    def begin(self) -> None:
        """Finds the ops of the graph that is about to run."""
        (self._are_finite,) = tf.get_collection(training_step.FINITE)

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Raises TrainingError if a weight or a statistic is NaN or infinite, so nothing is saved.

        A finite loss does not show that the update after it was finite.
        """
        self._activity.begin(activity.SAVING)
        if not session.run(self._are_finite):
            raise TrainingError(
                f"a weight is NaN or infinite at step {int(global_step_value):,}; "
                f"{nothing_was_saved(self._output_dir)}"
            )
        for function in self._before:
            function()

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Stops the clock; raises Stopped after a signal, since the checkpoint is complete."""
        self._activity.begin(activity.BETWEEN)
        self.step = int(global_step_value)
        self._clock.pause()
        self._stop.check()
        if self.at_end:
            self._tell()

    def end(self, session: Any, global_step_value: int) -> None:
        """Raises Stopped after a signal, so that the last validation is left out."""
        self._stop.check()
        self._tell()  # The session may end right after a validation, without another checkpoint.

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._last()


class SaverHook(CheckpointSaver):
    """Saves like Estimator's own hook, but does not fetch the global step separately.

    The checkpoint of the last step is saved at the end of the session. So its validation comes
    after the last use of the parameter servers, and no task has to wait for it.

    Args:
      folder: the folder for the checkpoints.
      save_steps: the number of steps between two checkpoints.
      log_folder: the folder for TensorBoard's graph and marks of checkpoints.
      saving: is told of each checkpoint.
      is_enough: function that is called after each step, and after the validation of a checkpoint
        if there is one: whether training ends. The last checkpoint is then the validated one, and
        in asynchronous training the one after it. None: it does not.
    """

    def __init__(
        self,
        folder: str,
        save_steps: int,
        log_folder: str,
        saving: Saving,
        is_enough: Optional[Callable[[], bool]] = None,
    ) -> None:
        super().__init__(folder, save_steps, log_folder, [saving])
        self._save_steps, self._saving, self._is_enough = save_steps, saving, is_enough

    def begin(self) -> None:
        """Finds the step's report in the graph that is about to run."""
        super().begin()
        self._report = training_step.report_tensors()

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report, which contains the global step."""
        return tf.train.SessionRunArgs(self._report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves a checkpoint that is due, unless training is to end; that saves at the end."""
        step = StepReport.of(run_values.results).step
        is_due = step >= self._saving.step + self._save_steps
        if is_due and not run_context.stop_requested:
            super().after_run(
                run_context, tf.train.SessionRunValues(step, run_values.options, None)
            )
        if self._is_enough and self._is_enough():
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Saves the last checkpoint."""
        self._saving.at_end = True
        super().end(session)


def nothing_was_saved(output_dir: str) -> str:
    """Returns the end of an error about values that are not finite: what the user can do."""
    step = checkpoints.latest_step(output_dir)
    return (
        f"nothing of that was saved, and the next start continues from step {step:,}: give it a "
        "lower --learning-rate, or train anew with --warmup-epochs 1 and another --output-dir"
    )
