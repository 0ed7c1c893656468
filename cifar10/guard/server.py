"""This task's TensorFlow server, and what tasks write on each other's servers.

Each task writes its identity on its own server, where others read it. The master writes its own one
on each server that it uses, if it is the first: so of two masters only one has the servers. A
process that is started again has an empty server.

The sessions for that are made on the server that is asked, and see only its own devices. So they
need no other task, and it does not matter which task the server is, and of which cluster.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster, Task, check_port
from cifar10.errors import ConfigError
from cifar10.guard.peers import answers

_ANSWER_SECS = 5.0  # for each request to another task's server
_NO_TASK = "/job:nobody"
_NOT_OURS = (tf.errors.UnimplementedError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
# The keys of the map: who the task is, the master that uses it, and that master once it has ended.
_TASK, _MASTER, _ENDED = range(3)
Terms = Mapping[str, str]  # what trainers must agree on, by name


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a task says about itself to other tasks.

    Attributes:
      role: the task's name in `Cluster.jobs`, e.g. `ps/0`.
      job: what it has in common with the tasks of its job alone, see `Cluster.known_by`.
      run: the key of the run that the task belongs to: SHA-256 of the job token, or of the random
        number in the output folder; empty if the task does not know it.
      place: the output folder of that run's master, as `HOST:FOLDER`, for messages.
      terms: what trainers must agree on, by name; a task that trains nothing has none.
    """

    role: str
    job: str
    run: str = ""
    place: str = ""
    terms: Terms = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls, cluster: Cluster, run: str = "", place: str = "", terms: Optional[Terms] = None
    ) -> "Identity":
        """Returns the identity of the cluster's own task."""
        return cls(cluster.own.role, cluster.known_by, run, place, terms or {})

    def in_run_of(self, master: "Identity") -> "Identity":
        """Returns this identity in the run of a master."""
        return dataclasses.replace(self, run=master.run, place=master.place)

    def as_text(self) -> str:
        """Returns the identity as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Identity":
        """Reads what `as_text` has written.

        Raises:
          ValueError: the text is something else.
        """
        try:
            found = cls(**json.loads(text))
            "".join((found.role, found.job, found.run, found.place, *found.terms.values()))
        except (AttributeError, RecursionError, TypeError) as error:
            raise ValueError(f"malformed: {str(error)[:100]}") from None
        return found


def start(cluster: Cluster, session_config: Any, identity: Optional[Identity] = None) -> str:
    """Starts the server through which other tasks reach this one, until the process ends.

    Estimator would start a server itself, but without the threads and device counts of the session
    configuration.

    Args:
      cluster: the cluster and this process's task in it.
      session_config: a tf.ConfigProto with threads and devices.
      identity: what the task says about itself; None: only its cluster.

    Returns:
      The server's session target.

    Raises:
      ConfigError: the server cannot listen at the task's address.
    """
    spec = tf.train.ClusterSpec({job: list(tasks) for job, tasks in cluster.jobs.items()})
    try:
        target = tf.distribute.Server(
            spec,
            job_name=cluster.task_type,
            task_index=cluster.task_index,
            protocol="grpc",
            config=with_filters(session_config, []),
        ).target
    except tf.errors.OpError as error:
        check_port(cluster)  # Another process may have taken it since the first check.
        raise ConfigError(
            f"{cluster.label} cannot serve at {cluster.own.address}: {error.message}"
        ) from error
    with contextlib.closing(Board(target)) as board:
        board.put(_TASK, identity or Identity.of(cluster))
    return str(target)


def with_filters(session_config: Any, devices: list[str]) -> Any:
    """Copies a session configuration and sets its device filters to `devices`.

    A session waits for every task that its filters match, or for all tasks if it has no filters.
    """
    config = tf.ConfigProto()
    config.CopyFrom(session_config)
    del config.device_filters[:]
    config.device_filters.extend(devices)
    return config


class NoAnswer(Exception):
    """The task did not answer, or ended meanwhile."""


class Board:
    """What a task's server holds for all: who the task is, whose it is, and whether that has ended.

    Args:
      target: session target of the task's server.
      answer_secs: time limit for each request to the server; 0: none.
    """

    def __init__(self, target: str, answer_secs: float = 0) -> None:
        with tf.Graph().as_default() as graph, tf.device("/device:CPU:0"):
            self._key, self._text = tf.placeholder(tf.int64, []), tf.placeholder(tf.string, [])
            # A map keeps the first value of a key.
            place = {"dtypes": [tf.string], "shared_name": "job_identities"}
            self._size = tf.raw_ops.MapSize(**place)
            self._put = tf.raw_ops.MapStage(
                key=self._key, indices=[0], values=[self._text], **place
            )
            # Reading waits for an entry, and the wait cannot be cancelled: see `_read`.
            self._value = tf.raw_ops.MapPeek(key=self._key, indices=[0], **place)
        config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * answer_secs))
        config.device_filters.append(_NO_TASK)
        self._session = tf.Session(target, graph, config=config)

    def put(self, key: int, identity: Identity) -> None:
        """Writes who the task is, or whose; has no effect if that is known."""
        self._session.run(self._put, {self._key: key, self._text: identity.as_text()})

    def identity(self) -> Optional[Identity]:
        """Returns who the task is; None if it has not said so yet."""
        return self._read(_TASK)

    def master(self) -> Optional[Identity]:
        """Returns the master that uses the task; None if no master has used it yet."""
        return self._read(_MASTER)

    def claim(self, master: Identity) -> Identity:
        """Makes this the master that uses the task, unless there is one; returns who it is."""
        self.put(_MASTER, master)
        return self.master() or master

    def tell_end(self, master: Identity) -> None:
        """Tells the task that its master has ended, unless another job or run has it."""
        own = self.identity()
        if own and own.job == master.job and self.claim(master).run == master.run:
            self.put(_ENDED, master)

    def has_ended(self) -> bool:
        """Returns whether the master that uses the task has ended."""
        return bool(self._session.run(self._size) > _ENDED)

    def close(self) -> None:
        """Ends the session."""
        self._session.close()

    def _read(self, key: int) -> Optional[Identity]:
        """Returns an entry; those with lower keys are written first."""
        if self._session.run(self._size) <= key:
            return None
        (text,) = self._session.run(self._value, {self._key: key})
        return Identity.from_text(text.decode("utf-8", "replace"))


@contextlib.contextmanager
def board_of(task: Task) -> Iterator[Board]:
    """Yields what another task's server holds.

    Raises:
      NoAnswer: the server does not answer.
      ConfigError: what answers is no server of this program.
    """
    if not answers(task.address):  # Where gRPC cannot connect, it does not try again for a while.
        raise NoAnswer
    try:
        with contextlib.closing(Board(f"grpc://{task.address}", _ANSWER_SECS)) as found:
            yield found
    except (*_NOT_OURS, ValueError) as error:
        what = getattr(error, "message", str(error)).strip().splitlines()[-1]
        raise ConfigError(
            f"{task} is no task of this program ({what}); correct the address, or start the task "
            "there"
        ) from error
    except tf.errors.OpError as error:
        raise NoAnswer from error


def tell_end(serving: Iterable[Task], master: Identity) -> None:
    """Tells tasks that serve that their master has ended; passes over who does not answer."""
    for task in serving:
        # It may have ended, or another program may have its port.
        with contextlib.suppress(NoAnswer, ConfigError), board_of(task) as board:
            board.tell_end(master)
