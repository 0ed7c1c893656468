"""The interval at which a worker checks whether the chief's session is ready.

Touches: `tensorflow.python.training.monitored_session.sm`, the module from which
`tf.train.WorkerSessionCreator` takes the class SessionManager.

Why: `recovery_wait_secs` is a public argument of `tf.train.SessionManager`, 30 s by default. But
`tf.train.MonitoredTrainingSession`, which Estimator uses for training, makes the manager itself and
does not pass this argument on.
"""

import functools

import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session

_SECS = 0.5

MODULE = monitored_session.sm  # Sessions are made by the SessionManager of this module.


def look_often() -> None:
    """Makes workers' sessions check every half second, for the rest of this process."""
    MODULE.SessionManager = functools.partial(tf.train.SessionManager, recovery_wait_secs=_SECS)
