"""This task's TensorFlow server, and the configuration of sessions on it."""

import contextlib
import resource
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.cluster.address_check import check_port
from cifar10.cluster.spec import Cluster
from cifar10.errors import ConfigError


def start(cluster: Cluster, session_config: Any) -> Any:
    """Starts the server through which other tasks reach this one.

    Estimator would start a server itself, but without the threads and device counts of the session
    configuration.

    Args:
      cluster: the cluster and this process's task in it.
      session_config: a tf.ConfigProto with threads and devices.

    Returns:
      A tf.distribute.Server, which runs until the process ends.

    Raises:
      ConfigError: the server cannot listen at the task's address.
    """
    _raise_descriptor_limit()
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
        check_port(cluster)  # Another process may have taken it since the first check.
        raise ConfigError(
            f"{cluster.label} cannot serve at {cluster.address}: {error.message}"
        ) from error


def with_filters(session_config: Any, devices: list[str]) -> Any:
    """Copies a session configuration and sets its device filters to `devices`.

    A session waits for every task that its filters match, or for all tasks if it has no filters.
    """
    config = tf.ConfigProto()
    config.CopyFrom(session_config)
    del config.device_filters[:]
    config.device_filters.extend(devices)
    return config


def _raise_descriptor_limit() -> None:
    """Raises this process's limit of open descriptors as far as the system permits.

    Each other task takes some for its connections, and the usual limit of 1,024 is meant for
    programs that use select().
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses some values below the limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
