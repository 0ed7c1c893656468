"""Training under hooks: steps that only count, and a clock that only steps move."""

import signal
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.host.signals import StopRequest
from cifar10.run.hooks.training import StepClock
from cifar10.step import training_step


def stopped() -> StopRequest:
    """A request as a SIGTERM makes it."""
    stop = StopRequest()
    stop._note(signal.SIGTERM)
    return stop


def train(
    *hooks: Any, first_step: int = 0, over_at: int = 1_000_000, over_before: bool = False
) -> int:
    """Counts steps up to 20 under the hooks; the chief ends training at step `over_at`."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        begun = step.assign(first_step).op
        setting = tf.train.Scaffold(init_fn=lambda _, session: session.run(begun))
        counted = step.assign_add(1, read_value=True)
        numbers = (counted, 0, 0, tf.greater_equal(counted, over_at))
        tf.stack([tf.cast(one, tf.float64) for one in numbers], name=training_step.REPORT)
        tf.constant(over_before, name=training_step.OVER)
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        creator = tf.train.ChiefSessionCreator(setting)
        result = first_step
        with tf.train.MonitoredSession(creator, list(hooks)) as session:
            while not session.should_stop() and result < first_step + 20:
                result = int(session.run(counted))
        return result


class SteppedClock(StepClock):
    """A clock by which each step takes half a second."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.stood_before: set[int] = set()  # steps that a validation came before

    def run(self) -> bool:
        self.steps += 1
        stood = self.steps == 1 or self.steps in self.stood_before
        self.starts += stood
        return stood

    @property
    def seconds(self) -> float:
        return 0.5 * self.steps
