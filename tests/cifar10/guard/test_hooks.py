"""What the hooks of the guard note of training and evaluation, and how a signal ends both."""

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped
from cifar10.guard import Guard
from cifar10.guard.watchdog import BETWEEN, EVALUATION, FIRST_STEP, SAVING, START, STEP
from cifar10.host.process import StopRequest
from cifar10.step.sync_replicas import ROUNDS
from tests.cifar10.hooked import stopped


class Noting(tf.train.SessionRunHook):
    """Notes the phases that other threads see."""

    def __init__(self, guarded: Guard) -> None:
        self._activity, self.phases = guarded.activity, [guarded.activity.phase]

    def note(self, *_: Any) -> None:
        self.phases.append(self._activity.phase)

    after_create_session = before_run = after_run = note


def run(*hooks: Any, steps: int = 2) -> int:
    """Counts steps under hooks; returns their number."""
    with tf.Graph().as_default():
        count = tf.train.create_global_step().assign_add(1, read_value=True)
        tf.add_to_collection(ROUNDS, tf.constant([1, 1]))
        done = 0
        with tf.train.MonitoredSession(hooks=hooks) as session:
            while not session.should_stop() and done < steps:
                done = int(session.run(count))
        return done


@pytest.fixture
def guarded() -> Guard:
    return Guard(TrainConfig(), StopRequest())


def test_training_notes_its_phases_and_the_session_whose_steps_it_takes(guarded):
    noting = Noting(guarded)
    run(*guarded.hooks, noting)
    assert noting.phases == [None, START, FIRST_STEP, BETWEEN, STEP, BETWEEN]
    assert guarded.activity.session is not None
    assert guarded.activity.rounds is not None


def test_a_save_and_each_batch_of_an_evaluation_are_noted(guarded):
    noting = Noting(guarded)
    guarded.saving.before_save(None, 1)
    noting.note()
    guarded.saving.after_save(None, 1)
    noting.note()
    run(*guarded.evaluation_hooks, noting, steps=1)
    assert noting.phases == [None, SAVING, BETWEEN, BETWEEN, EVALUATION, EVALUATION]


def test_a_signal_starts_no_session_and_ends_an_evaluation_and_a_save_at_its_end():
    guarded = Guard(TrainConfig(), stopped())
    for hooks in (guarded.hooks, guarded.evaluation_hooks):
        with pytest.raises(Stopped):
            run(*hooks)
    guarded.saving.before_save(None, 1)
    with pytest.raises(Stopped):
        guarded.saving.after_save(None, 1)
