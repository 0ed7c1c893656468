"""An update changes nothing before all that it waits for has arrived, and its mark is even."""

import time
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step.replication import Replication
from cifar10.step.sync_replicas import STANDING
from cifar10.step.update_mark import UPDATES
from tests.cifar10 import steps
from tests.cifar10.replica_threads import WAIT_SECS, at_the_same_time
from tests.cifar10.steps import make_batches, make_plan

QUIET_SECS = 0.3  # for what must not happen
HALF = 6
PIECES = ("/cpu:0", "/cpu:1")


class Replica:
    """A replica whose weights are in two pieces, with a session on the server."""

    def __init__(self, target: str, replica: int) -> None:
        self.graph = tf.Graph()
        place = Replication(PIECES, ("/cpu:0",), "", 1, 2, replica, 2)
        config = TrainConfig(num_layers=8, train_batch_size=HALF)
        with self.graph.as_default():
            tf.set_random_seed(1)
            self.spec, self.images, self.labels = steps.build(config, make_plan(1), place)
        self.session = tf.Session(target, self.graph)
        images, labels = make_batches(1, HALF)[0]
        self.feed = {self.images: images, self.labels: labels}

    def begin(self) -> None:
        """What the chief's session does first."""
        with self.graph.as_default():
            self.session.run([self.spec.scaffold.init_op or tf.global_variables_initializer()])
        self.session.run(self.spec.scaffold.local_init_op)
        self.spec.training_chief_hooks[0].after_create_session(self.session, None)

    def step(self) -> None:
        self.session.run(self.spec.train_op, self.feed)

    def state(self) -> list[np.ndarray]:
        """The values of all variables that a checkpoint gets."""
        variables = self.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
        return [np.asarray(value) for value in self.session.run(variables)]

    def ask(self, name: str) -> list[int]:
        found: list[int] = self.session.run(f"{name}:0").tolist()
        return found

    def pushes(self) -> dict[str, Any]:
        """The ops that push a gradient into an accumulator `sum_...`, by its name."""
        found = {}
        for op in self.graph.get_operations():
            if op.type == "ResourceAccumulatorApplyGradient" and "sum_" in op.inputs[0].op.name:
                found[op.inputs[0].op.name] = op
        return found

    def waiting(self, name: str) -> int:
        """How many gradients an accumulator holds."""
        return int(self.session.run(self._counts[name]))

    def count(self) -> None:
        """Makes what `waiting` reads; before any session runs."""
        with self.graph.as_default():
            self._counts = {
                name: tf.raw_ops.ResourceAccumulatorNumAccumulated(handle=op.inputs[0])
                for name, op in self.pushes().items()
            }


@pytest.fixture
def pair() -> Any:
    """A chief that has begun and a worker, on a server with two CPU devices."""
    config = tf.ConfigProto(device_count={"CPU": 2})
    target = tf.train.Server.create_local_server(config=config).target
    chief, worker = Replica(target, 0), Replica(target, 1)
    chief.count()
    chief.begin()
    yield chief, worker
    for one in (chief, worker):
        one.session.close()


def test_nothing_changes_before_the_last_gradient_of_a_round_has_arrived(pair) -> None:
    chief, worker = pair
    before = chief.state()
    pushes = worker.pushes()
    first, *rest = sorted(pushes)
    assert len(rest) == 2  # the other piece of the weights, and the statistics
    with at_the_same_time(chief.step):
        until = time.monotonic() + WAIT_SECS
        while not all(chief.waiting(name) for name in pushes):  # The chief's own gradients.
            assert time.monotonic() < until
        # A worker that is stopped between its pushes.
        worker.session.run(pushes[first], worker.feed)
        while chief.waiting(first):
            assert time.monotonic() < until
        time.sleep(QUIET_SECS)
        for one, other in zip(chief.state(), before):
            np.testing.assert_array_equal(one, other)
        assert chief.ask(UPDATES) == [0, 0]
        worker.session.run([pushes[name] for name in rest], worker.feed)
    assert chief.ask(UPDATES) == [2, 1]


def test_a_replica_whose_gradient_is_missing_is_known(pair) -> None:
    chief, worker = pair
    (current, *arrived) = chief.ask(STANDING)
    assert current not in arrived
    with at_the_same_time(chief.step):
        until = time.monotonic() + WAIT_SECS
        while chief.ask(STANDING)[1] != current:
            assert time.monotonic() < until
        assert chief.ask(STANDING) == [current, current, 0]
        worker.step()
    assert chief.ask(STANDING) == [current + 1, current, current]
