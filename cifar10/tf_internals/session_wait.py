"""How often a worker looks whether the chief has made its session ready.

Touches: `tensorflow.python.training.monitored_session.sm`, the module in which
`tf.train.WorkerSessionCreator` looks up the SessionManager that it makes.

Why: `recovery_wait_secs` is a public setting of `tf.train.SessionManager`, half a minute by
default. But `tf.train.MonitoredTrainingSession`, by which Estimator trains, makes the manager
itself and hands no setting on to it.
"""

import functools

import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session

_SECS = 0.5

MODULE = monitored_session.sm  # its SessionManager is the one that sessions are made by


def look_often() -> None:
    """Makes the sessions of workers look every half second, in the rest of this process."""
    MODULE.SessionManager = functools.partial(tf.train.SessionManager, recovery_wait_secs=_SECS)
