"""Shutdown of a cluster: trainers report their end to the tasks that only serve, which then end.

A report contains the identity of the trainer. Serving tasks ignore reports of other jobs.
"""

import time
from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import introduction, server
from cifar10.cluster.identity import Identity
from cifar10.cluster.liveness import answers
from cifar10.cluster.spec import MASTER, Cluster

# How long a serving task waits for the remaining trainers after the master has reported its end.
GRACE_SECS = 7.0
_TELL_SECS = 5.0


def task_device(job: str, index: int) -> str:
    """Returns the name of a task's CPU, e.g. `/job:ps/task:1/device:CPU:0`."""
    return f"/job:{job}/task:{index}/device:CPU:0"


def _queue(job: str, index: int) -> Any:
    """Makes the queue in which a serving task receives the identities of trainers that have ended.

    The serving task job/index holds the queue.
    """
    with tf.device(task_device(job, index)):
        return tf.FIFOQueue(1024, tf.string, [[]], shared_name=f"ended_{job}_{index}")


def tell(
    cluster: Cluster, serving: Sequence[tuple[str, int]], target: str, identity: Identity
) -> None:
    """Tells the serving tasks that this trainer has ended.

    Tasks that do not answer are skipped.

    Args:
      cluster: the cluster and this process's task in it.
      serving: (job, index) of each serving task.
      target: session target of this task's server.
      identity: this trainer's identity, with the owner of its run if it is known.
    """
    for job, index in serving:
        if not answers(cluster.address_of(job, index)):
            continue
        config = server.with_filters(tf.ConfigProto(), [cluster.device, f"/job:{job}/task:{index}"])
        with tf.Graph().as_default(), tf.Session(target, config=config) as session:
            told = _queue(job, index).enqueue(identity.as_text())
            options = tf.RunOptions(timeout_in_ms=int(1000 * _TELL_SECS))
            try:
                session.run(told, options=options)
            except (
                tf.errors.UnavailableError,
                tf.errors.DeadlineExceededError,
                tf.errors.UnimplementedError,
            ):
                continue  # The task has ended meanwhile, or another program has its port.


class ShutdownListener:
    """Receives, in a serving task, the reports of trainers that have ended.

    Args:
      cluster: the cluster and this process's task in it, which listens.
      trainers: labels of the trainers, such as `worker/0`, as in `Cluster.labels`.
      target: session target of this task's server.

    Attributes:
      waiting: labels of the trainers that have not reported their end.
    """

    def __init__(self, cluster: Cluster, trainers: Sequence[str], target: str) -> None:
        self.waiting = set(trainers)
        self._own, self._target, self._labels = Identity.of(cluster), target, cluster.labels
        self._master_ended: Optional[float] = None
        with tf.Graph().as_default() as graph:
            queue = _queue(cluster.task_type, cluster.task_index)
            self._ended = queue.dequeue_many(queue.size())
        self._session = tf.Session(
            target, graph, config=server.with_filters(tf.ConfigProto(), [cluster.device])
        )

    def listen(self) -> None:
        """Reads the reports that have arrived since the last call."""
        for text in self._session.run(self._ended):
            sender = self._of_this_job(text.decode("utf-8", "replace"))
            if sender is None:
                continue
            self.waiting.discard(self._labels.get(sender.role, sender.role))
            if sender.role.startswith(f"{MASTER}/") and self._master_ended is None:
                self._master_ended = time.monotonic()

    def _of_this_job(self, text: str) -> Optional[Identity]:
        """Returns the sender of a report; None if it belongs to another job or another run."""
        try:
            sender = Identity.from_text(text)
        except ValueError:
            return None
        if self._own.difference(sender):
            return None
        owner = introduction.own_owner(self._target)
        if owner and (sender.owner is None or sender.owner.digest != owner.digest):
            return None
        return sender

    @property
    def master_ended(self) -> bool:
        """Whether the master has reported its end, and training is over."""
        return self._master_ended is not None

    @property
    def is_over(self) -> bool:
        """Whether this task may end.

        That is when the master has ended, and either the other trainers have, too, or the grace
        period of GRACE_SECS is over.
        """
        if self._master_ended is None:
            return False
        return not self.waiting or time.monotonic() - self._master_ended > GRACE_SECS
