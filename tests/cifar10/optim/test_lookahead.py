"""Lookahead against the same rule in numpy, by hand."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.optim.lookahead import Lookahead
from tests.cifar10 import steps
from tests.cifar10.steps import make_batches, make_plan


def test_every_few_steps_the_weights_are_pulled_to_their_average():
    # Each step adds 1 to the one weight; 7 steps in all, a pull after the 2nd, 4th and 6th.
    average, weight, expected = 10.0, 10.0, []
    for step in range(1, 8):
        weight += 1.0
        if step % 2 == 0:
            decay = 0.95**2 * (step / 7) ** 3
            average = weight = decay * average + (1 - decay) * weight
        if step == 7:  # training ends with the average
            weight = average
        expected.append(weight)
    with tf.Graph().as_default(), tf.Session() as session:
        piece = tf.get_variable("w", initializer=[10.0], use_resource=True)
        step = tf.train.create_global_step()
        lookahead = Lookahead(TrainConfig(lookahead_steps=2), [piece], total_steps=7)
        with tf.control_dependencies([piece.assign_add([1.0]), step.assign_add(1)]):
            pulled = lookahead.pull(step.read_value())
        session.run(tf.global_variables_initializer())
        assert session.run(lookahead.averages[0]).tolist() == [10.0]
        assert tf.trainable_variables() == [piece]  # No optimizer trains an average.
        found = []
        for _ in range(7):
            session.run(pulled)
            found.append(float(session.run(piece)[0]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_run_that_ends_with_a_pull_ends_with_that_average():
    with tf.Graph().as_default(), tf.Session() as session:
        piece = tf.get_variable("w", initializer=[1.0], use_resource=True)
        step = tf.constant(10, tf.int64)
        lookahead = Lookahead(TrainConfig(lookahead_steps=5), [piece], total_steps=10)
        session.run(tf.global_variables_initializer())
        piece.load([3.0], session)
        session.run(lookahead.pull(step))
        # The decay is .95^5 = .7738 at the end of a run.
        assert session.run(piece)[0] == pytest.approx(0.7738 * 1 + 0.2262 * 3, abs=1e-3)
        assert session.run(lookahead.averages[0]) == session.run(piece)


class Averaged:
    """One weight, which each step raises by 1, and its average; a pull every second step."""

    def __init__(self) -> None:
        self._piece = tf.get_variable("w", initializer=[10.0], use_resource=True)
        step = tf.train.create_global_step()
        lookahead = Lookahead(TrainConfig(lookahead_steps=2), [self._piece], total_steps=100)
        with tf.control_dependencies([self._piece.assign_add([1.0]), step.assign_add(1)]):
            self._train = lookahead.pull(step.read_value())
        self._end = lookahead.end(step.read_value())
        self._average = lookahead.averages[0]
        self.session = tf.Session()
        self.session.run(tf.global_variables_initializer())

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.session.run(self._train)

    def end(self) -> None:
        self.session.run(self._end)

    @property
    def weight(self) -> float:
        return float(self.session.run(self._piece)[0])

    @property
    def average(self) -> float:
        return float(self.session.run(self._average)[0])


@pytest.fixture
def averaged():
    with tf.Graph().as_default():
        found = Averaged()
        with found.session:
            yield found


def test_a_run_that_ends_between_two_pulls_ends_with_the_average_of_the_last_one(averaged):
    averaged.train(4)
    pulled = averaged.weight
    averaged.train(1)
    assert averaged.weight == pytest.approx(pulled + 1.0)
    averaged.end()
    assert averaged.weight == averaged.average == pytest.approx(pulled)
    averaged.end()  # once more changes nothing
    assert averaged.weight == averaged.average == pytest.approx(pulled)


def test_a_run_that_goes_on_after_an_early_end_goes_on_from_the_average(averaged):
    averaged.train(5)
    averaged.end()
    pulled = averaged.weight
    averaged.train(1)  # the sixth step, a pull of 2.2e-4 * .95^2 of the way back
    assert averaged.weight == averaged.average == pytest.approx(pulled + 1.0, abs=1e-3)


def test_a_run_that_ends_before_its_first_pull_keeps_its_weights(averaged):
    averaged.train(1)
    averaged.end()
    assert averaged.weight == 11.0


def test_a_run_of_fewer_steps_than_a_pull_takes_keeps_its_weights():
    with tf.Graph().as_default(), tf.Session() as session:
        piece = tf.get_variable("w", initializer=[1.0], use_resource=True)
        lookahead = Lookahead(TrainConfig(lookahead_steps=5), [piece], total_steps=3)
        session.run(tf.global_variables_initializer())
        piece.load([4.0], session)
        session.run(lookahead.pull(tf.constant(3, tf.int64)))
        assert session.run(piece).tolist() == [4.0]


SETTINGS = {"num_layers": 8, "train_batch_size": 12, "lookahead_steps": 2, "learning_rate": 0.01}


def test_checkpoints_hold_the_average_of_each_weight_and_statistic_under_its_name():
    with steps.training(TrainConfig(**SETTINGS), make_plan(2)) as run:
        for batch in make_batches(3):
            run.step(batch)
        saved = run.saved()
    names = [name for name in saved if name.endswith("/Lookahead")]
    plain = {name[: -len("/Lookahead")] for name in names}
    assert plain == {
        name
        for name in saved
        if name.startswith("model/") and not name.endswith(("/Momentum", "/Lookahead"))
    }
    # After the third step the weights are one step past the average that the second one left.
    assert all(np.abs(saved[name] - saved[f"{name}/Lookahead"]).max() > 0 for name in plain)
