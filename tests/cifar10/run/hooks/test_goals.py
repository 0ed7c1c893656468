"""Where training ends when validations have reached a goal, and what the last checkpoint is."""

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.host.signals import StopRequest
from cifar10.run.goals import Goals
from cifar10.run.hooks.goals import EvaluatorGoalHook, GoalHook
from cifar10.run.hooks.training import PauseListener, SaverHook, StepClock
from cifar10.step import training_step
from tests.cifar10.hooked import stopped, train
from tests.cifar10.tf_internals.private import add_listener

ENOUGH = TrainConfig(stop_at_accuracy=0.5)


class Validations:
    """Rows of validations; each adds a tenth to the accuracy."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, step: int) -> None:
        accuracy = 0.1 * (len(self.rows) + 1)
        self.rows.append({"step": step, "epoch": 1.0, "loss": 1.0, "accuracy": accuracy})


class Validate(tf.train.CheckpointSaverListener):
    """Validates after each save, as Estimator does."""

    def __init__(self, validations: Validations) -> None:
        self._validations = validations

    def after_save(self, session: Any, global_step_value: int) -> None:
        self._validations.add(int(global_step_value))


class EarlyEnd(tf.train.SessionRunHook):
    """Makes the op of an early end add 100 to the step."""

    def begin(self) -> None:
        tf.add_to_collection(training_step.EARLY_END, tf.train.get_global_step().assign_add(100).op)


def saved_step(folder: Any) -> int:
    return int(tf.train.load_variable(tf.train.latest_checkpoint(str(folder)), "global_step"))


def test_the_last_checkpoint_is_the_validated_one_and_the_end_is_told_once(tmp_path):
    validations, said, told = Validations(), [], []
    saver = SaverHook(str(tmp_path), 2)
    last = PauseListener(StepClock(), lambda: None, StopRequest(), saver, lambda: told.append(1))
    add_listener(saver, last)
    add_listener(saver, Validate(validations))
    hook = GoalHook(Goals(ENOUGH, lambda: validations.rows), said.append)
    # The checkpoint of step 0 has the first row, that of step 8 the fifth.
    assert train(EarlyEnd(), saver, hook) == 8
    assert saved_step(tmp_path) == 8
    assert [row["step"] for row in validations.rows] == [0, 2, 4, 6, 8]
    assert said == [
        "training ends: validation accuracy 0.5000 at step 8 has reached --stop-at-accuracy 0.5"
    ]
    assert told == [1]


@pytest.mark.parametrize(
    ("stop", "last"), [(StopRequest(), 103), (stopped(), 3)], ids=["goal", "and a signal"]
)
def test_a_goal_that_an_evaluator_sees_ends_training_with_the_final_weights(tmp_path, stop, last):
    validations = Validations()
    for step in range(3):
        validations.add(step)

    class Evaluator(tf.train.SessionRunHook):
        """Validates another checkpoint in each step."""

        def after_run(self, run_context: Any, run_values: Any) -> None:
            validations.add(100 + len(validations.rows))

    hook = EvaluatorGoalHook(Goals(ENOUGH, lambda: validations.rows), lambda _: None, stop)
    assert train(EarlyEnd(), hook, Evaluator(), SaverHook(str(tmp_path), 1000)) == 3
    assert saved_step(tmp_path) == last
