"""How tasks say who they are: through TensorFlow's servers, which hold the text for others.

Each task puts its identity into a map on its own server, where others read it. The master puts the
owner of its run into another map on each serving task. A map keeps the first value of a key, so of
two masters only one becomes the owner. A process that is started again has empty maps.

The sessions are made on the server that is asked, and see only its own devices. So they need no
other task, and it does not matter which task the server is, and of which cluster.
"""

import contextlib
from collections.abc import Iterator
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.identity import Identity, Owner

_ANSWER_SECS = 5.0  # for each request to another task's server
_NO_TASK = "/job:nobody"
_NOT_OURS = (tf.errors.UnimplementedError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)


class NoAnswerError(Exception):
    """The task did not answer, or ended meanwhile."""


class StrangerError(Exception):
    """What answers is no task of this program."""


class _Note:
    """A text in a map on the server of the session, with at most one entry."""

    def __init__(self, name: str) -> None:
        with tf.device("/device:CPU:0"):
            key = tf.constant(0, tf.int64)
            place = {"dtypes": [tf.string], "shared_name": name}
            self._given = tf.placeholder(tf.string, [])
            self._size = tf.raw_ops.MapSize(**place)
            # Reading waits for an entry, and the wait cannot be cancelled: see `read`.
            self._read = tf.raw_ops.MapPeek(key=key, indices=[0], **place)
            self._put = tf.raw_ops.MapStage(key=key, indices=[0], values=[self._given], **place)

    def put(self, session: tf.Session, text: str) -> None:
        """Puts the text into the map; has no effect if there is one already."""
        session.run(self._put, {self._given: text})

    def read(self, session: tf.Session) -> Optional[str]:
        """Returns the text; None if there is none yet."""
        if not session.run(self._size):
            return None
        (value,) = session.run(self._read)
        return str(value.decode())


class Conversation:
    """The identity and the owner that a task's server holds.

    Args:
      target: session target of the task's server.
      answer_secs: time limit for each request to the server; 0: none.
    """

    def __init__(self, target: str, answer_secs: float = 0) -> None:
        with tf.Graph().as_default() as graph:
            self._identity, self._owner = _Note("job_identity"), _Note("job_owner")
        config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * answer_secs))
        config.device_filters.append(_NO_TASK)
        self._session = tf.Session(target, graph, config=config)

    def introduce(self, identity: Identity) -> None:
        """Says on this process's own server who it is."""
        self._identity.put(self._session, identity.as_text())

    def identity(self) -> Optional[Identity]:
        """Returns who the task is; None if it has not introduced itself yet."""
        text = self._identity.read(self._session)
        return None if text is None else Identity.from_text(text)

    def owner(self) -> Optional[Owner]:
        """Returns the owner of the run that uses the task; None if no master has used it yet."""
        text = self._owner.read(self._session)
        return None if text is None else Owner.from_text(text)

    def claim(self, owner: Owner) -> Owner:
        """Makes this the owner, unless there is one already; returns the owner that there is."""
        self._owner.put(self._session, owner.as_text())
        return self.owner() or owner

    def close(self) -> None:
        """Ends the session."""
        self._session.close()


@contextlib.contextmanager
def conversation(address: str) -> Iterator[Conversation]:
    """Yields what the server at `host:port` holds.

    Raises:
      NoAnswerError: the server does not answer.
      StrangerError: what answers is no server of TensorFlow, or holds something else.
    """
    try:
        with contextlib.closing(Conversation(f"grpc://{address}", _ANSWER_SECS)) as found:
            yield found
    except _NOT_OURS as error:
        raise StrangerError(error.message.strip().splitlines()[-1]) from error
    except tf.errors.OpError as error:
        raise NoAnswerError(error.message) from error
    except ValueError as error:
        raise StrangerError(str(error)) from error


def introduce(target: str, identity: Identity) -> None:
    """Says on this process's own server, at the session target, who it is."""
    with contextlib.closing(Conversation(target)) as own:
        own.introduce(identity)


def own_owner(target: str) -> Optional[Owner]:
    """Returns the owner that a master has put on this process's own server, if one has."""
    with contextlib.closing(Conversation(target)) as own:
        return own.owner()
