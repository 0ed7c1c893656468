"""Uses of TensorFlow and Estimator beyond their public API: messages, private names, patches.

All were checked with TensorFlow 2.15.1; tests in tests/cifar10/tf_internals fail if another version
differs.

Messages: the class of an exception does not identify the cause. InvalidArgumentError stands for a
damaged record, a checkpoint of another model and a mistake in the graph; besides the message, the
public API gives only the op.

Saving: the documentation of `tf.train.Saver` says that it accepts objects of the classes
`SaveableObject` and `SaveSpec`, but these have no public names. With variables alone, a checkpoint
would hold the flat vector in which training keeps the weights, not the variables of the layers.

Sessions: `recovery_wait_secs` is a public argument of `tf.train.SessionManager`, 30 s by default.
But `tf.train.MonitoredTrainingSession`, which Estimator uses for training, makes the manager itself
and does not pass this argument on. It also makes a session anew after an error, and initialises or
restores the variables before any hook is called: too late to see that a parameter server belongs to
another job.
"""

import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session
from tensorflow.python.training.saving.saveable_object import SaveableObject, SaveSpec

SESSIONS = monitored_session.sm  # Sessions are made by the SessionManager of this module.
# What a message says of its cause.
NOT_AN_EXAMPLE = re.compile(r"Could not parse example|Feature: \w+ \(data type|Key: \w+[.,]")
FAILED_RESTORE = re.compile("RestoreV2|Restoring from checkpoint failed")  # damaged, or unlike
MISSING_VARIABLE = re.compile(r"Key \S+ not found in checkpoint")
SESSION_TIMEOUT = re.compile("Session was not ready after waiting")  # of a worker, for its chief's
DISK_FAILURE = re.compile("|".join(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS))))
OTHER_NUMBER = re.compile(r"dataset was expected to contain \d+ elements but contained")

_FORBIDDEN = re.compile(r"(?:.*: )?(.+); (?:Permission denied|Operation not permitted)")
_FROM_SERVER = re.compile(r"From /job:\S+:")
_AFTER_NODE = re.compile(r"^Node: .*\n(.+)$", re.MULTILINE)


def forbidden_file(message: str) -> Optional[str]:
    """Returns the file that this user may not write, or read; None if the message names none."""
    found = _FORBIDDEN.search(reason(message))
    return found[1] if found else None


def failed_assertion(message: str, start: str) -> Optional[str]:
    """Returns the text of a failed assertion in the graph, from `start` on; None without it."""
    if start not in message:
        return None
    return message[message.index(start) :].splitlines()[0].split("]")[0].strip()


def names_file_in(folder: str, message: str) -> bool:
    """Returns whether the message is about a file in this folder."""
    start, words = (re.sub("/+", "/", text) for text in (folder.rstrip("/") + "/", message))
    return bool(re.search(rf"(^|[\s}}]){re.escape(start)}[^/;\s]+(;|$)", words))


def reason(message: str) -> str:
    """Returns the line that states the cause: the one after the op's name, or else the first.

    An error of an op that a server ran has a line that names only the server.
    """
    lines = [line for line in message.splitlines() if not _FROM_SERVER.fullmatch(line.strip())]
    found = _AFTER_NODE.search("\n".join(lines))
    return (found[1] if found else (lines or message.splitlines())[0]).strip()


class NamedTensors(SaveableObject):
    """Saves tensors under given names and restores all of them in one op.

    Args:
      variable: a variable from which the tensors are computed; each entry needs a different one.
      values: tensors to save, by name in the checkpoint.
      name: unique name of this entry.
      assign: function from the restored tensors, in the order of `values`, to the op that assigns
        them.
    """

    def __init__(
        self, variable: Any, values: Mapping[str, tf.Tensor], name: str, assign: Callable[..., Any]
    ) -> None:
        specs = [SaveSpec(value, "", key) for key, value in values.items()]
        super().__init__(variable, specs, name)
        self._assign = assign

    def restore(self, restored_tensors: Sequence[tf.Tensor], restored_shapes: Any) -> Any:
        """Returns the op that assigns the restored tensors; `tf.train.Saver` calls this method."""
        return self._assign(restored_tensors)


@contextlib.contextmanager
def look_often(target: str, check: Callable[[], None]) -> Iterator[None]:
    """Makes workers' sessions look every half second, for the time of a `with` statement.

    Args:
      target: session target of the server whose sessions are checked.
      check: function called before a session on that server reads or writes variables, and again
        after a worker has found the chief's variables; an exception that it raises ends training.
    """

    class SessionManager(tf.train.SessionManager):
        """Makes sessions, and checks those on one server."""

        def prepare_session(self, master: str, *arguments: Any, **settings: Any) -> tf.Session:
            """Makes the chief's session."""
            if master == target:
                check()
            return super().prepare_session(master, *arguments, **settings)

        def wait_for_session(self, master: str, *arguments: Any, **settings: Any) -> tf.Session:
            """Makes a worker's session, once the chief has initialised the variables."""
            if master == target:
                check()
            session = super().wait_for_session(master, *arguments, **settings)
            if master == target:
                check()
            return session

    before = SESSIONS.SessionManager
    SESSIONS.SessionManager = functools.partial(SessionManager, recovery_wait_secs=0.5)
    try:
        yield
    finally:
        SESSIONS.SessionManager = before
