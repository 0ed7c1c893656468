"""The start of this task's TensorFlow server."""

import contextlib
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster, check_port
from cifar10.errors import ConfigError
from cifar10.guard.handshake import TASK, Registry, TaskIdentity


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
        tf.distribute.Server(
            spec,
            job_name=cluster.task_type,
            task_index=cluster.task_index,
            protocol="grpc",
            config=session_config,
        )
    except tf.errors.OpError as error:
        check_port(cluster)  # Another process may have taken it since the first check.
        raise ConfigError(
            f"{cluster.label} cannot serve at {cluster.own.address}: {error.message}"
        ) from error
    with contextlib.closing(Registry(cluster.own.target)) as registry:
        registry.write(TASK, identity or TaskIdentity.of(cluster))
