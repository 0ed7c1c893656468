"""Synchronous replicas in threads, on one server: how they meet, wait, start again and end."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.step.params import Replication
from cifar10.step.sync_replicas import SyncBarrier
from tests.cifar10.answering import wait_until
from tests.cifar10.replica_threads import WAIT_SECS, at_the_same_time, place

QUIET_SECS = 0.3  # for what must not


class Replica:
    """A replica that pushes what it is fed; the chief adds the mean to a variable `total`."""

    def __init__(self, target: str, replication: Replication) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default():
            self._total = tf.get_variable("total", [2], initializer=tf.zeros_initializer())
            averaged = [SimpleNamespace(shape=(2,), device="/cpu:0")]
            self.barrier = barrier = SyncBarrier(replication, averaged)
            self._value = tf.placeholder(tf.float32, [2])
            self._pushed = barrier.push([self._value])
            if replication.is_chief:
                mean = barrier.mean(self._pushed)[0]
                with tf.control_dependencies([self._total.assign_add(mean)]):
                    self._step = barrier.close_round()
                self._begin = [self._total.initializer, barrier.begin()]
                self._end = barrier.end_all()
            else:
                self._step = barrier.wait(self._pushed)
            self._state = {
                "rounds": barrier.rounds(),
                "is_over": barrier.is_over(),
                "missing": barrier.missing(),
                "gradients": barrier._accumulators[0].num_accumulated(),
                "total": self._total,
            }
        self.session = tf.Session(target, self.graph)

    def begin(self) -> None:
        """What a session of the chief does first."""
        self.session.run(self._begin)

    def end_all(self) -> None:
        """What the chief does last."""
        self.session.run(self._end)

    def step(self, value: float, as_of_round: Optional[int] = None) -> None:
        self.session.run(self._step, self._feed(value, as_of_round))

    def push(self, value: float) -> None:
        """Pushes a gradient without waiting for the end of the round."""
        self.session.run(self._pushed, self._feed(value))

    def _feed(self, value: float, as_of_round: Optional[int] = None) -> dict[Any, Any]:
        feed: dict[Any, Any] = {self._value: [value, 10.0 * value]}
        return feed if as_of_round is None else {**feed, self.barrier.current: as_of_round}

    def state(self, name: str) -> Any:
        """Returns what this replica reads; `total` is the sum of the means of all rounds."""
        return self.session.run(self._state[name]).tolist()

    @property
    def round(self) -> int:
        return int(self.state("rounds")[0])


@pytest.fixture
def pair(target: str) -> Iterator[tuple[Replica, Replica]]:
    """A chief that has begun, and a worker."""
    chief, worker = Replica(target, place(0)), Replica(target, place(1))
    chief.begin()
    yield chief, worker
    for replica in (chief, worker):
        replica.session.close()


def step_together(chief: Replica, worker: Replica, value: float = 1.0) -> None:
    """One round, in which the chief's gradient is `value` and the worker's is 1."""
    with at_the_same_time(lambda: worker.step(1.0)):
        chief.step(value)


def wait_for_gradient(replica: Replica) -> None:
    """Waits until a gradient is in, so that whoever pushed it waits for its round."""
    wait_until(lambda: bool(replica.state("gradients")))


def test_a_synchronous_update_is_the_mean_of_both_replicas(pair):
    chief, worker = pair
    first = chief.round

    def train() -> None:
        for _ in range(50):
            worker.step(3.0)

    with at_the_same_time(train):
        for _ in range(50):
            chief.step(1.0)
    assert chief.state("total") == [50 * 2.0, 50 * 20.0]
    assert chief.round == worker.round == first + 50
    assert chief.state("gradients") == 0


def test_a_replica_whose_token_another_process_took_looks_again(pair, target):
    chief, worker = pair
    with at_the_same_time(lambda: worker.step(1.0)) as ended:
        wait_for_gradient(worker)
        before = Replica(target, place(1))  # It has the same name, takes a token, and ends.
        with at_the_same_time(lambda: before.step(1.0)) as taken:
            wait_until(lambda: worker.state("gradients") == 2)
            chief.step(1.0)
            wait_until(lambda: ended.is_set() or taken.is_set())
            assert not (ended.is_set() and taken.is_set())
            (before if ended.is_set() else worker).state("rounds")
    before.session.close()


def test_a_replica_whose_gradient_is_missing_is_known(pair):
    chief, worker = pair
    current, *arrived = chief.state("rounds")
    assert current not in arrived
    with at_the_same_time(lambda: chief.step(1.0)):
        wait_until(lambda: chief.state("rounds")[1] == current)
        assert chief.state("rounds") == [current, current, 0]
        worker.step(1.0)
    assert chief.state("rounds") == [current + 1, current, current]


def test_a_gradient_of_an_earlier_round_is_dropped_and_its_worker_goes_on_at_once(pair):
    chief, worker = pair
    late = chief.round
    for _ in range(2):
        step_together(chief, worker)
    with at_the_same_time(lambda: worker.step(1e6, as_of_round=late)) as ended:
        assert ended.wait(WAIT_SECS)
    assert chief.state("gradients") == 0
    step_together(chief, worker, 3.0)
    assert chief.state("total") == [4.0, 40.0]


def test_with_a_backup_the_chief_does_not_wait_for_the_slowest(target):
    chief, worker = Replica(target, place(0, aggregate=1)), Replica(target, place(1, aggregate=1))
    chief.begin()
    for _ in range(3):
        chief.step(2.0)
    assert chief.state("total") == [6.0, 60.0]
    # What comes in time counts as well as the chief's own.
    worker.push(4.0)
    chief.step(2.0)
    assert chief.state("total") == [9.0, 90.0]


def test_a_chief_that_starts_again_releases_a_waiting_worker_and_forgets_its_gradient(target, pair):
    chief, worker = pair
    with at_the_same_time(lambda: worker.step(1e6)) as ended:
        wait_for_gradient(chief)
        assert not ended.wait(QUIET_SECS)
        before = chief.round
        chief.session.close()
        again = Replica(target, place(0))
        again.begin()
        assert again.round > before
    assert again.state("gradients") == 0
    step_together(again, worker, 3.0)
    assert again.state("total") == [2.0, 20.0]


def test_a_worker_waits_for_the_chief_to_begin_a_round(target):
    chief, worker = Replica(target, place(0)), Replica(target, place(1))
    assert worker.state("missing") == [b"round"]
    chief.begin()
    assert worker.state("missing") == []


def test_after_the_end_no_worker_waits_until_the_chief_begins_again(pair):
    chief, worker = pair
    with at_the_same_time(lambda: worker.step(1.0)) as ended:
        wait_for_gradient(chief)
        assert not ended.wait(QUIET_SECS)
        assert not worker.state("is_over")
        chief.end_all()
    assert worker.state("is_over")
    with at_the_same_time(lambda: worker.step(1.0)) as ended:
        assert ended.wait(WAIT_SECS)
    chief.begin()
    assert not worker.state("is_over")
    step_together(chief, worker, 3.0)
    assert chief.state("total") == [2.0, 20.0]
