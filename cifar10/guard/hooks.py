"""The hooks by which training and evaluation tell the guard what the main thread does."""

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from cifar10.guard.watchdog import BETWEEN, EVALUATION, FIRST_STEP, SAVING, START, STEP, StallCheck
from cifar10.host.process import StopRequest
from cifar10.step.sync_replicas import ROUNDS


class TrainingPhases(tf.train.SessionRunHook):
    """Notes the phases of training, and asks for the end after a signal.

    Args:
      stop: knows whether a signal has arrived.
      activity: the phases of the main thread.
      is_ending: function that returns whether a signal ends training now.
    """

    def __init__(
        self, stop: StopRequest, activity: StallCheck, is_ending: Callable[[], bool]
    ) -> None:
        self._stop, self._activity, self._is_ending = stop, activity, is_ending

    def begin(self) -> None:
        """Raises Stopped after a signal, before a session is made."""
        self._stop.check()
        rounds = tf.get_collection(ROUNDS)
        self._activity.rounds = rounds[0] if rounds else None

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Notes the start, which a session that is made anew repeats."""
        self._activity.session = session
        self._activity.begin(START)
        self._phase = FIRST_STEP

    def before_run(self, run_context: Any) -> None:
        """Notes a step."""
        self._activity.begin(self._phase)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Notes the end of a step; ends training after a signal."""
        self._activity.begin(BETWEEN)
        self._phase = STEP
        if self._is_ending():
            run_context.request_stop()


class SavingPhase(tf.train.CheckpointSaverListener):
    """Notes that a checkpoint is written, and where."""

    def __init__(self, stop: StopRequest, activity: StallCheck, output_dir: str) -> None:
        self._stop, self._activity, self._output_dir = stop, activity, output_dir

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Notes the beginning."""
        self._activity.begin(SAVING)

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Notes the end; raises Stopped after a signal, since the checkpoint is complete."""
        self._activity.begin(BETWEEN)
        self._stop.saved = tf.io.gfile.join(self._output_dir, f"model.ckpt-{global_step_value}")
        self._stop.check()

    def end(self, session: Any, global_step_value: int) -> None:
        """Raises Stopped after a signal, instead of the validation that would come next."""
        self._stop.check()


class EvaluationPhase(tf.train.SessionRunHook):
    """Notes each batch; raises Stopped after a signal, as an evaluation has nothing to save."""

    def __init__(self, stop: StopRequest, activity: StallCheck) -> None:
        self._stop, self._activity = stop, activity

    def before_run(self, run_context: Any) -> None:
        """Notes a batch."""
        self._activity.begin(EVALUATION)
        self._stop.check()
