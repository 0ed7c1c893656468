"""The handshake: tasks belong to one job and run, and train alike, before they use each other.

Each task writes its identity on its own server, where others read it. The chief writes its own one
on each server that it uses, if it is the first: so of two chiefs only one has the servers. A
process that is started again has an empty server.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import TOKEN, Cluster, Task, digest
from cifar10.config.settings import flag_name, settings_of
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.guard.peers import Mismatch, answers
from cifar10.input.records import RecordSet
from cifar10_program import VERSION

# What decides a step besides the settings of the model and of training: settings and packages.
_SETTINGS = ("precision", "sync", "replicas_to_aggregate", "replication", "ps_transfer")
_PACKAGES = ("step", "ops", "kernels", "optim", "models", "input")
_DIGEST_CHARS = 8
_ANSWER_SECS = 5.0  # for each request to another task's server
_ASKED_SECS = 2.0  # for the chief, which asks each second, and then says what differs, too
_NO_TASK = "/job:nobody"
_NOT_OURS = (tf.errors.UnimplementedError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)
# The keys of a registry: who the task is, the chief that uses it, and that chief once it has ended.
TASK, CHIEF, _ENDED = range(3)


def settings_that_must_match(config: TrainConfig, records: RecordSet) -> dict[str, str]:
    """Returns what decides the steps of all trainers: settings by flag, the code, the records."""
    settings = {
        flag_name(name): str(getattr(config, name))
        for name, setting in settings_of(type(config)).items()
        if setting.group in ("model", "training") or name in _SETTINGS
        if name != "test_time_augmentation"
    }
    root = Path(__file__).parents[1]
    # Editors keep files beside those that they edit, whose names begin with a dot.
    paths = sorted(path for name in _PACKAGES for path in (root / name).glob("**/[!.]*.py"))
    code = "".join(f"{path.relative_to(root)}{path.read_text('utf-8')}" for path in paths)
    return {
        "the program": f"version {VERSION}, {digest(code)[:_DIGEST_CHARS]}",
        **settings,
        "the training records": digest("\n".join(records.fingerprint()))[:_DIGEST_CHARS],
    }


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
        return bool(self._session.run(self._size) > _ENDED)


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
        raise ConfigError(
            f"{task} is no task of this program ({what}); correct the address, or start the task "
            "there"
        ) from error
    except tf.errors.OpError as error:
        raise NoAnswer from error


def tell_end(serving: Iterable[Task], chief: TaskIdentity) -> None:
    """Tells tasks that serve this chief's run of its end; passes over who does not answer."""
    for task in serving:
        # It may have ended, or another program may have its port.
        with contextlib.suppress(NoAnswer, ConfigError), registry_of(task) as registry:
            own = registry.read(TASK)
            if own and own.job == chief.job and registry.write(CHIEF, chief).run == chief.run:
                registry.write(_ENDED, chief)


@dataclasses.dataclass(eq=False)
class Handshake:
    """Asks other tasks who they are, and makes the chief the owner of those that serve it.

    Attributes:
      cluster: the cluster and this process's task in it.
      asked: the tasks to check; others are taken as they are.
      serving: those among them that serve a run. The chief claims them, see `claims`; a worker uses
        them only if they serve its chief's run.
      identity: this task's identity, with its run as far as it is known: a chief knows its own,
        others learn it from the chief.
      claims: whether this task claims serving tasks when it meets them; else it only looks. A chief
        begins to claim with its first session: if one task refuses it before, it has claimed no
        other one, which another run may need.
    """

    cluster: Cluster
    asked: Collection[Task]
    serving: Collection[Task]
    identity: TaskIdentity
    claims: bool = False
    _met: set[Task] = dataclasses.field(default_factory=set, init=False)

    def meet(self, task: Task) -> bool:
        """Asks a task who it is.

        If a task of another job answers where one of this job was before, it may end by itself, and
        the right one may come back. So it counts as no answer, unless it would be used at once.

        Returns:
          Whether the task has answered and may be used. A server that does not say who it is has
          just started, or is another program's, and counts as one that does not answer.

        Raises:
          Mismatch: this is the chief, and a worker trains otherwise; the right one may come.
          ConfigError: the task belongs to another job or another run, or it is the chief, and this
            worker trains otherwise.
        """
        if task not in self.asked:
            return True
        try:
            with registry_of(task) as registry:
                may_be_used = self._check(task, registry)
                self._met.update([task] * may_be_used)
                return may_be_used
        except NoAnswer:
            return False
        except Mismatch as error:
            if self.cluster.is_master:
                raise
            time.sleep(_ASKED_SECS)
            raise ConfigError(str(error)) from None
        except ConfigError:
            if task in self._met and task not in self.serving:
                return False
            raise

    def _check(self, task: Task, registry: Registry) -> bool:
        """Returns what `meet` does, and raises Mismatch in a worker, too."""
        own, found = self.identity, registry.read(TASK)
        if found is None:
            return False
        if found.job != own.job:
            raise ConfigError(
                f"{task} belongs to another job: it has {found.job}, this task has {own.job}; "
                f"correct the address, or give all tasks of a job the same cluster and {TOKEN}"
            )
        if found.role != task.role:
            labels = {known.role: known.label for known in self.cluster.tasks}
            other = labels.get(found.role, found.role)
            raise ConfigError(f"{task} is {other} of this job; correct the addresses")
        for name, value in own.must_match.items() if found.must_match else ():
            if value != found.must_match.get(name):
                raise Mismatch(
                    f"{name} is {value} for {self.cluster.label}, but "
                    f"{found.must_match.get(name)} for {task}; start all trainers with the same "
                    "program, settings and records"
                )
        if task == self.cluster.master:  # From it, others learn the run.
            self.identity = dataclasses.replace(own, run=found.run, output_dir=found.output_dir)
        # A worker that has not met its chief yet asks again before it uses a serving task.
        if task not in self.serving or not own.run:
            return True
        holder = registry.write(CHIEF, own) if self.claims else registry.read(CHIEF)
        if holder is None or holder.run == own.run:
            return True
        if not self.cluster.is_master:
            # Its chief may have started again, with another run.
            if not self.meet(self.cluster.master):
                return False
            if self.identity.run == holder.run:
                return True
        raise ConfigError(
            f"{task} serves another run, that of {holder.output_dir}, and not this task's, that of "
            f"{own.output_dir}; end that run first; if it has ended, or its files are gone, start "
            f"{task.label} again; to continue it, give its --output-dir"
        )
