"""This task's TensorFlow server, and how sessions on it are to behave."""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.errors import ConfigError


def start(cluster: Cluster, session_config: Any) -> Any:
    """Starts the server that other tasks reach this one by.

    Estimator would start one itself, but without the threads and device counts of the session
    configuration.

    Args:
      cluster: who is where.
      session_config: threads and devices.

    Returns:
      A tf.distribute.Server; it runs until the process ends.

    Raises:
      ConfigError: the port cannot be had.
    """
    spec = tf.train.ClusterSpec({job: list(tasks) for job, tasks in cluster.jobs.items()})
    try:
        return tf.distribute.Server(
            spec,
            job_name=cluster.task_type,
            task_index=cluster.task_index,
            protocol="grpc",
            config=with_filters(session_config, []),
        )
    except tf.errors.OpError as error:
        raise ConfigError(
            f"{cluster.label} cannot serve at {cluster.address}: {error.message}"
        ) from error


def with_filters(session_config: Any, devices: list[str]) -> Any:
    """Copies a session configuration, with `devices` as its device filters.

    A session waits for every task that its filters let through, for all tasks without filters.
    """
    config = tf.ConfigProto()
    config.CopyFrom(session_config)
    del config.device_filters[:]
    config.device_filters.extend(devices)
    return config
