"""A worker's session, as Estimator makes it, looks often at the chief's."""

import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.tf_internals import session_wait


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """The patch is over with the test."""
    monkeypatch.setattr(session_wait.MODULE, "SessionManager", tf.train.SessionManager)


def looks(max_wait_secs: int) -> list[float]:
    """When a worker looked, until it found its session ready at the third time."""
    target, times = tf.train.Server.create_local_server().target, []

    def look() -> np.ndarray:
        times.append(time.monotonic())
        return np.array([b"weights"] if len(times) < 3 else [], object)

    with tf.Graph().as_default():
        scaffold = tf.train.Scaffold(ready_op=tf.py_func(look, [], tf.string))
        with tf.train.MonitoredTrainingSession(
            target, is_chief=False, scaffold=scaffold, max_wait_secs=max_wait_secs
        ):
            return times


def test_a_worker_looks_every_half_second():
    session_wait.look_often()
    times = looks(max_wait_secs=20)
    assert len(times) == 3
    assert times[2] - times[0] >= 2 * 0.5


def test_by_itself_tensorflow_would_wait_longer():
    with pytest.raises(tf.errors.DeadlineExceededError):
        looks(max_wait_secs=20)


def test_saying_it_twice_is_saying_it_once():
    session_wait.look_often()
    session_wait.look_often()
    assert session_wait.MODULE.SessionManager.func is tf.train.SessionManager
