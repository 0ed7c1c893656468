"""This task's TensorFlow server, and what the server of each task holds for all others."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster, Task, check_port
from cifar10.errors import ConfigError
from cifar10.guard.peers import answers

_ANSWER_SECS = 5.0  # for each request to another task's server
_NO_TASK = "/job:nobody"
_NOT_OURS = (tf.errors.UnimplementedError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
# The keys of a registry: who the task is, the chief that uses it, and that chief once it has ended.
TASK, CHIEF, ENDED = range(3)


@dataclasses.dataclass(frozen=True)
class TaskIdentity:
    """What a task says about itself to other tasks.

    Attributes:
      role: the task's name in `Cluster.jobs`, e.g. `ps/0`.
      job: what it has in common with the tasks of its job alone, see `Cluster.known_by`.
      run: the key of the run that the task belongs to: SHA-256 of the job token, or of the random
        number in the output folder; empty if the task does not know it.
      output_dir: that of the run's chief, as `HOST:FOLDER`, for messages.
      must_match: what trainers must agree on, by name; a task that trains nothing has none.
    """

    role: str
    job: str
    run: str = ""
    output_dir: str = ""
    must_match: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, *details: Any) -> "TaskIdentity":
        """Returns the identity of the cluster's own task, with `run` and what follows it."""
        return cls(cluster.own.role, cluster.known_by, *details)

    @classmethod
    def from_text(cls, text: str) -> "TaskIdentity":
        """Reads the JSON that `Registry.write` has written.

        Raises:
          ValueError: the text is something else.
        """
        try:
            found = cls(**json.loads(text))
            "".join((*dataclasses.astuple(found)[:-1], *found.must_match.values()))
        except (AttributeError, RecursionError, TypeError) as error:
            raise ValueError(f"malformed: {str(error)[:100]}") from None
        return found


class NoAnswer(Exception):
    """The task did not answer, or ended meanwhile."""


class Registry:
    """What a task's server holds for all: who the task is, whose it is, and whether that has ended.

    Its session is made on the server that is asked, and sees only that one's devices. So it needs
    no other task, and it does not matter which task the server is, and of which cluster.

    Args:
      target: session target of the task's server.
      answer_secs: time limit for each request to the server; 0: none.
    """

    def __init__(self, target: str, answer_secs: float = 0) -> None:
        with tf.Graph().as_default() as graph, tf.device("/device:CPU:0"):
            self._key, self._text = tf.placeholder(tf.int64, []), tf.placeholder(tf.string, [])
            # A map keeps the first value of a key.
            entries: Any = {"dtypes": [tf.string], "shared_name": "job_identities"}
            entry = {"key": self._key, "indices": [0], **entries}
            self._size = tf.raw_ops.MapSize(**entries)
            self._put = tf.raw_ops.MapStage(values=[self._text], **entry)
            # Reading waits for an entry, and the wait cannot be cancelled: see `read`.
            self._value = tf.raw_ops.MapPeek(**entry)
        config = tf.ConfigProto(device_filters=[_NO_TASK])
        config.operation_timeout_in_ms = int(1000 * answer_secs)
        self._session = tf.Session(target, graph, config=config)

    def close(self) -> None:
        """Ends the session."""
        self._session.close()

    def write(self, key: int, identity: TaskIdentity) -> TaskIdentity:
        """Writes an entry, of the key TASK or CHIEF, unless there is one; returns what it is."""
        text = json.dumps(dataclasses.asdict(identity))
        self._session.run(self._put, {self._key: key, self._text: text})
        return self.read(key) or identity

    def read(self, key: int) -> Optional[TaskIdentity]:
        """Returns an entry, None if there is none; those with lower keys are written first."""
        if self._session.run(self._size) <= key:
            return None
        (text,) = self._session.run(self._value, {self._key: key})
        return TaskIdentity.from_text(text.decode("utf-8", "replace"))

    def has_ended(self) -> bool:
        """Returns whether the chief that uses the task has ended."""
        return bool(self._session.run(self._size) > ENDED)


@contextlib.contextmanager
def registry_of(task: Task) -> Iterator[Registry]:
    """Yields the registry of another task.

    Raises:
      NoAnswer: the server does not answer.
      ConfigError: what answers is no server of this program.
    """
    if not answers(task.address):  # Where gRPC cannot connect, it does not try again for a while.
        raise NoAnswer
    try:
        with contextlib.closing(Registry(task.target, _ANSWER_SECS)) as found:
            yield found
    except (*_NOT_OURS, ValueError) as error:
        what = getattr(error, "message", str(error)).strip().splitlines()[-1]
        way_out = "correct the address, or start the task there"
        raise ConfigError(f"{task} is no task of this program ({what}); {way_out}") from error
    except tf.errors.OpError as error:
        raise NoAnswer from error


def start(cluster: Cluster, session_config: Any, identity: Optional[TaskIdentity] = None) -> None:
    """Starts the server through which other tasks reach this one, until the process ends.

    Estimator would start a server itself, but without the threads and device counts of the session
    configuration.

    Args:
      cluster: the cluster and this process's task in it.
      session_config: a tf.ConfigProto with threads and devices, without device filters.
      identity: what the task says about itself; None: only its cluster.

    Raises:
      ConfigError: the server cannot listen at the task's address.
    """
    spec = tf.train.ClusterSpec({job: list(tasks) for job, tasks in cluster.jobs.items()})
    try:
        tf.distribute.Server(spec, cluster.task_type, cluster.task_index, "grpc", session_config)
    except tf.errors.OpError as error:
        check_port(cluster)  # Another process may have taken it since the first check.
        where = f"{cluster.label} cannot serve at {cluster.own.address}"
        raise ConfigError(f"{where}: {error.message}") from error
    with contextlib.closing(Registry(cluster.own.target)) as registry:
        registry.write(TASK, identity or TaskIdentity.of(cluster))
