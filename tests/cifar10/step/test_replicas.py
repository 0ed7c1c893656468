"""What replicas share: the flag that ends their training, and a place to meet."""

from types import SimpleNamespace

import pytest
import tensorflow.compat.v1 as tf

from cifar10.step.replicas import OverFlag, SharedState
from tests.cifar10.replica_threads import place

# What is read of a variable whose gradients are averaged.
AVERAGED = [SimpleNamespace(shape=(2,), device="/cpu:0")]


class Flagged:
    """A graph with the flag, and with what raises it where it is the chief's."""

    def __init__(self, target: str) -> None:
        with tf.Graph().as_default() as graph:
            self.flag = OverFlag("/cpu:0")
            self._value, self._missing = self.flag.variable.read_value(), self.flag.missing()
            self.raised = self.flag.raised(None)
        self.session = tf.Session(target, graph)

    @property
    def is_up(self) -> bool:
        return bool(self.session.run(self._value))

    @property
    def missing(self) -> list[str]:
        return [name.decode() for name in self.session.run(self._missing)]


def test_the_end_of_the_chiefs_training_raises_the_flag_for_all(target):
    chief, worker = Flagged(target), Flagged(target)
    assert worker.missing == ["training_over"]
    chief.session.run(chief.flag.variable.initializer)
    assert (worker.missing, worker.is_up) == ([], False)
    chief.session.run(chief.raised)
    assert worker.is_up


def test_a_chief_that_starts_again_lowers_the_flag(target):
    chief, worker = Flagged(target), Flagged(target)
    chief.session.run(chief.flag.variable.initializer)
    chief.session.run(chief.raised)
    again = Flagged(target)
    again.session.run(again.flag.variable.initializer)
    assert not worker.is_up


def test_nothing_that_replicas_share_gets_into_a_checkpoint():
    with tf.Graph().as_default():
        SharedState(place(0), AVERAGED)
        assert tf.global_variables() == []


@pytest.mark.parametrize(
    ("replication", "over", "rendezvous"),
    [
        (place(0, None, 1), False, False),
        (place(0, None), True, False),
        (place(0, 2), True, True),
    ],
    ids=["alone", "asynchronous", "synchronous"],
)
def test_replicas_share_no_more_than_they_need(replication, over, rendezvous):
    with tf.Graph().as_default():
        shared = SharedState(replication, AVERAGED)
        assert (shared.over is not None, shared.rendezvous is not None) == (over, rendezvous)
        assert len(shared.missing()) == over + rendezvous
        assert len(shared.initializers()) == over + rendezvous
        assert len(shared.chief_hooks()) == rendezvous
        assert (shared.end_all() is not None) == over


def test_a_worker_ends_nobodys_training():
    with tf.Graph().as_default():
        assert SharedState(place(1, 2), AVERAGED).end_all() is None
