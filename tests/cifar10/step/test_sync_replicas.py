"""Synchronous replicas in threads, on one server: how they meet, wait, start again and end."""

import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Callable, Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.step.params import Replication
from cifar10.step.sync_replicas import STANDING, SharedState
from tests.cifar10.replica_threads import WAIT_SECS, at_the_same_time, place

QUIET_SECS = 0.3  # for what must not


class Replica:
    """A replica that pushes what it is fed; the chief adds the mean to a variable `total`.

    Args:
      target: of its server.
      replication: its place.
      flagged: whether it shares the flag that says that training is over.
      holders: the devices where gradients are accumulated, each the whole one.
      hold: is called in each step between the round's reading and the gradient's pushing.
    """

    def __init__(
        self,
        target: str,
        replication: Replication,
        flagged: bool = False,
        holders: Sequence[str] = ("/cpu:0",),
        hold: Callable[[], None] = lambda: None,
    ) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(replication.task_device):
            self._total = tf.get_variable("total", [2], initializer=tf.zeros_initializer())
            averaged = [SimpleNamespace(shape=(2,), device=device) for device in holders]
            self.shared = SharedState(replication, averaged)
            assert self.shared.rendezvous is not None
            self.meeting = self.shared.rendezvous
            self._value = tf.placeholder(tf.float32, [2])
            with tf.control_dependencies([self.meeting.current]):
                held = tf.py_func(hold, [], [])
            with tf.control_dependencies([held]):
                value = tf.identity(self._value)
            self._pushed = self.meeting.push([value for _ in holders])
            if replication.is_chief:
                mean = self.meeting.mean(self._pushed)[0]
                with tf.control_dependencies([self._total.assign_add(mean)]):
                    self._step = self.meeting.close_round()
                self._hook = self.meeting.hook()
                self._initializers = [self._total.initializer, self.meeting.initializer]
            else:
                over = self.shared.over if flagged else None
                self._step = self.meeting.wait(self._pushed, over)
            self.meeting.keep_for_hooks()
            self._missing = self.meeting.missing()
            self._count = tf.stack([one.num_accumulated() for one in self.meeting._accumulators])
        self.session = tf.Session(target, self.graph)

    def begin(self) -> None:
        """What a session of the chief does first."""
        self.session.run(self._initializers)
        self._hook.after_create_session(self.session, None)

    def step(self, value: float, as_of_round: Optional[int] = None) -> None:
        self.session.run(self._step, self._feed(value, as_of_round))

    def push(self, value: float, as_of_round: Optional[int] = None) -> None:
        """Pushes a gradient without waiting for the end of the round."""
        self.session.run(self._pushed, self._feed(value, as_of_round))

    def _feed(self, value: float, as_of_round: Optional[int]) -> dict[Any, Any]:
        feed: dict[Any, Any] = {self._value: [value, 10.0 * value]}
        return feed if as_of_round is None else {**feed, self.meeting.current: as_of_round}

    @property
    def total(self) -> list[float]:
        """The sum of the means of all rounds."""
        found: list[float] = self.session.run(self._total).tolist()
        return found

    @property
    def round(self) -> int:
        return int(self.session.run(self.meeting.round))

    @property
    def waiting_gradients(self) -> int:
        return int(self.session.run(self._count).max())

    @property
    def standing(self) -> list[int]:
        found: list[int] = self.session.run(f"{STANDING}:0").tolist()
        return found

    @property
    def missing(self) -> list[str]:
        return [name.decode() for name in self.session.run(self._missing)]


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
    until = time.monotonic() + WAIT_SECS
    while not replica.waiting_gradients:
        assert time.monotonic() < until, "no gradient came"
        time.sleep(0.01)


def test_a_synchronous_update_is_the_mean_of_both_replicas(pair):
    chief, worker = pair
    first = chief.round

    def train() -> None:
        for _ in range(50):
            worker.step(3.0)

    with at_the_same_time(train):
        for _ in range(50):
            chief.step(1.0)
    assert chief.total == [50 * 2.0, 50 * 20.0]
    assert chief.round == worker.round == first + 50
    assert chief.waiting_gradients == 0


def test_a_replica_whose_gradient_is_missing_is_known(pair):
    chief, worker = pair
    current, *arrived = chief.standing
    assert current not in arrived
    with at_the_same_time(lambda: chief.step(1.0)):
        until = time.monotonic() + WAIT_SECS
        while chief.standing[1] != current:
            assert time.monotonic() < until
        assert chief.standing == [current, current, 0]
        worker.step(1.0)
    assert chief.standing == [current + 1, current, current]


def test_a_gradient_of_an_earlier_round_is_dropped(pair):
    chief, worker = pair
    late = chief.round
    for _ in range(2):
        step_together(chief, worker)
    worker.push(1e6, as_of_round=late)
    assert chief.waiting_gradients == 0
    step_together(chief, worker, 3.0)
    assert chief.total == [4.0, 40.0]


def test_a_worker_whose_gradient_is_late_goes_on_at_once(pair):
    chief, worker = pair
    late = chief.round
    step_together(chief, worker)
    with at_the_same_time(lambda: worker.step(1e6, as_of_round=late)) as ended:
        assert ended.wait(WAIT_SECS)


def test_with_a_backup_the_chief_does_not_wait_for_the_slowest(target):
    chief, worker = Replica(target, place(0, aggregate=1)), Replica(target, place(1, aggregate=1))
    chief.begin()
    for _ in range(3):
        chief.step(2.0)
    assert chief.total == [6.0, 60.0]
    # What comes in time counts as well as the chief's own.
    worker.push(4.0)
    chief.step(2.0)
    assert chief.total == [9.0, 90.0]


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
    assert again.waiting_gradients == 0
    step_together(again, worker, 3.0)
    assert again.total == [2.0, 20.0]


def test_a_worker_waits_for_the_chief_to_begin_a_round(target):
    chief, worker = Replica(target, place(0)), Replica(target, place(1))
    assert worker.missing == ["sync_round"]
    chief.session.run(chief.meeting.initializer)
    assert worker.missing == ["sync_round"]
    chief.begin()
    assert worker.missing == []


def test_the_end_releases_a_worker_that_waits_for_its_round(target):
    chief, worker = Replica(target, place(0)), Replica(target, place(1))
    with chief.graph.as_default():
        raised = chief.shared.end_all()
    chief.session.run(chief.shared.over.initializer)
    chief.begin()
    with at_the_same_time(lambda: worker.step(1.0)) as ended:
        wait_for_gradient(chief)
        assert not ended.wait(QUIET_SECS)
        chief.session.run(raised)


def test_a_worker_whose_gradient_comes_after_the_end_does_not_wait(target):
    chief, worker = Replica(target, place(0)), Replica(target, place(1), flagged=True)
    with worker.graph.as_default():
        ended = worker.shared.over.assign(1)
    worker.session.run(worker.shared.over.initializer)
    chief.begin()
    with at_the_same_time(lambda: worker.step(1.0)) as step_ended:
        wait_for_gradient(chief)
        assert not step_ended.wait(QUIET_SECS)
        chief.step(1.0)
    worker.session.run(ended)
    with at_the_same_time(lambda: worker.step(1.0)) as ended:
        assert ended.wait(WAIT_SECS)


# Parameter servers in processes of their own, which are killed and started again.
