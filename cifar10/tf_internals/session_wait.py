"""Sessions of training: how often a worker looks for the chief's, and a check before their use.

Touches: `tensorflow.python.training.monitored_session.sm`, the module from which
`tf.train.ChiefSessionCreator` and `tf.train.WorkerSessionCreator` take the class SessionManager.

Why: `recovery_wait_secs` is a public argument of `tf.train.SessionManager`, 30 s by default. But
`tf.train.MonitoredTrainingSession`, which Estimator uses for training, makes the manager itself and
does not pass this argument on. It also makes a session anew after an error, and initialises or
restores the variables before any hook is called: too late to see that a parameter server belongs to
another job.
"""

import functools
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session

_SECS = 0.5

MODULE = monitored_session.sm  # Sessions are made by the SessionManager of this module.


class _Manager(tf.train.SessionManager):
    """Makes sessions, and checks those on one server.

    Args:
      target: the server's session target.
      check: function called before a session on that server reads or writes variables, and again
        after a worker has found the chief's variables; an exception that it raises ends training.
      settings: arguments of tf.train.SessionManager.
    """

    def __init__(
        self, *, target: Optional[str], check: Callable[[], None], **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._checked_target, self._check = target, check

    def prepare_session(self, master: str, *arguments: Any, **settings: Any) -> tf.Session:
        """Makes the chief's session."""
        self._check_tasks(master)
        return super().prepare_session(master, *arguments, **settings)

    def wait_for_session(self, master: str, *arguments: Any, **settings: Any) -> tf.Session:
        """Makes a worker's session, once the chief has initialised the variables."""
        self._check_tasks(master)
        session = super().wait_for_session(master, *arguments, **settings)
        self._check_tasks(master)
        return session

    def _check_tasks(self, master: str) -> None:
        if master == self._checked_target:
            self._check()


def look_often(target: Optional[str] = None, check: Callable[[], None] = lambda: None) -> None:
    """Makes workers' sessions look every half second, for the rest of this process.

    Args:
      target: session target of the server whose sessions are checked; None: no session is.
      check: function called before such a session is used; `_Manager` says when.
    """
    MODULE.SessionManager = functools.partial(
        _Manager, target=target, check=check, recovery_wait_secs=_SECS
    )
