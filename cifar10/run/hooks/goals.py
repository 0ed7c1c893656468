"""Session hooks that end training when validations have reached its goals."""

from typing import Any, Callable

import tensorflow.compat.v1 as tf

from cifar10.host.signals import StopRequest
from cifar10.run.goals import Goals
from cifar10.step import training_step


class GoalHook(tf.train.SessionRunHook):
    """Ends training right after the validation that says so, in the process that validates.

    This hook runs after the one that saves and validates. So the last checkpoint is the validated
    one, and in asynchronous training the one after it.

    Args:
      goals: judges the validations.
      say: function that prints a line.
    """

    def __init__(self, goals: Goals, say: Callable[[str], None]) -> None:
        self._goals, self._say, self._has_said = goals, say, False

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Ends the session if a goal is reached."""
        ending = self._goals.look()
        if ending is None:
            return
        if not self._has_said:
            self._has_said = True
            self._say(ending.line)
        # At each step, since a session that is lost before the last save is made anew.
        run_context.request_stop()


class EvaluatorGoalHook(GoalHook):
    """Ends training after a validation by a separate evaluator, at the step that is reached then.

    Like `TimeLimitHook`, this hook runs before the one that saves, so that the last checkpoint
    contains the final weights.

    Args:
      goals: judges the validations.
      say: function that prints a line.
      stop: knows whether a signal has arrived; then the weights are not changed.
    """

    def __init__(self, goals: Goals, say: Callable[[str], None], stop: StopRequest) -> None:
        super().__init__(goals, say)
        self._stop = stop

    def begin(self) -> None:
        """Finds the ops for an early end in the graph that is about to run."""
        self._early_end = tf.get_collection(training_step.EARLY_END)

    def end(self, session: Any) -> None:
        """Replaces the weights by the final ones if a goal has ended training."""
        if self._goals.ending and not self._stop.requested:
            session.run(self._early_end)
