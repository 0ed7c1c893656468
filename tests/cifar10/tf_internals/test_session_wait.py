"""A worker's session, as Estimator makes it, looks often at the chief's."""

import time
from unittest import mock

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import tf_internals


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
    with tf_internals.look_often("", lambda: None):
        times = looks(max_wait_secs=20)
    assert tf_internals.SESSIONS.SessionManager is tf.train.SessionManager
    assert len(times) == 3
    assert times[2] - times[0] >= 2 * 0.5


@pytest.mark.parametrize("is_chief", [True, False])
def test_a_check_that_fails_comes_before_variables_are_made(is_chief):
    target = tf.train.Server.create_local_server().target
    refuse = mock.Mock(side_effect=KeyError)
    with tf_internals.look_often(target, refuse), tf.Graph().as_default():
        variable = tf.get_variable("weight", [], initializer=tf.ones_initializer())
        with (
            pytest.raises(KeyError),
            tf.train.MonitoredTrainingSession(target, is_chief=is_chief, max_wait_secs=20),
        ):
            pass
        with tf.Session(target) as session, pytest.raises(tf.errors.FailedPreconditionError):
            session.run(variable)


def test_a_worker_is_checked_again_once_the_chiefs_variables_are_there():
    target, checks = tf.train.Server.create_local_server().target, []
    check = lambda: checks.append("check")  # noqa: E731

    def look() -> np.ndarray:
        checks.append("look")
        return np.array([], object)

    with tf_internals.look_often(target, check), tf.Graph().as_default():
        scaffold = tf.train.Scaffold(ready_op=tf.py_func(look, [], tf.string))
        with tf.train.MonitoredTrainingSession(target, is_chief=False, scaffold=scaffold):
            pass
    assert checks == ["check", "look", "check"]
