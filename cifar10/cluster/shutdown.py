"""Shutdown of a cluster: trainers report their end to the tasks that only serve, which then end."""

import time
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.cluster import server
from cifar10.cluster.liveness import answers
from cifar10.cluster.spec import MASTER, Cluster

# How long a serving task waits for the remaining trainers after the master has reported its end.
GRACE_SECS = 7.0
_TELL_SECS = 5.0


def task_device(job: str, index: int) -> str:
    """Returns the name of a task's CPU, e.g. `/job:ps/task:1/device:CPU:0`."""
    return f"/job:{job}/task:{index}/device:CPU:0"


def _queue(job: str, index: int) -> Any:
    """Makes the queue in which a serving task receives the labels of trainers that have ended.

    The serving task job/index holds the queue.
    """
    with tf.device(task_device(job, index)):
        return tf.FIFOQueue(1024, tf.string, [[]], shared_name=f"ended_{job}_{index}")


def tell(cluster: Cluster, serving: Sequence[tuple[str, int]], target: str) -> None:
    """Tells the serving tasks that this trainer has ended.

    Tasks that do not answer are skipped.

    Args:
      cluster: the cluster and this process's task in it.
      serving: (job, index) of each serving task.
      target: session target of this task's server.
    """
    for job, index in serving:
        if not answers(cluster.address_of(job, index)):
            continue
        config = server.with_filters(tf.ConfigProto(), [cluster.device, f"/job:{job}/task:{index}"])
        with tf.Graph().as_default(), tf.Session(target, config=config) as session:
            told = _queue(job, index).enqueue(cluster.label)
            options = tf.RunOptions(timeout_in_ms=int(1000 * _TELL_SECS))
            try:
                session.run(told, options=options)
            except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError):
                continue  # The task has ended meanwhile.


class ShutdownListener:
    """Receives, in a serving task, the reports of trainers that have ended.

    Args:
      cluster: the cluster and this process's task in it, which listens.
      trainers: labels of the trainers, such as `worker/0`.
      target: session target of this task's server.

    Attributes:
      waiting: labels of the trainers that have not reported their end.
    """

    def __init__(self, cluster: Cluster, trainers: Sequence[str], target: str) -> None:
        self.waiting = set(trainers)
        self._master_ended: float | None = None
        with tf.Graph().as_default() as graph:
            queue = _queue(cluster.task_type, cluster.task_index)
            self._ended = queue.dequeue_many(queue.size())
        self._session = tf.Session(
            target, graph, config=server.with_filters(tf.ConfigProto(), [cluster.device])
        )

    def listen(self) -> None:
        """Reads the reports that have arrived since the last call."""
        for label in self._session.run(self._ended):
            self.waiting.discard(label.decode())
            if label.decode().startswith(f"{MASTER}/") and self._master_ended is None:
                self._master_ended = time.monotonic()

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
