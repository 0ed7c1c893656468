"""What Estimator is told of a trainer in a cluster: its sessions, and where its ops are."""

import json
import os
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from cifar10.cluster import server
from cifar10.cluster.spec import PS, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.step.devices import DevicePlan

# The least time that a worker waits for a session of a master that answers. The master may be
# building its graph, and --cluster-timeout is for tasks that do not answer.
_LEAST_SESSION_SECS = 60


def run_config(
    config: TrainConfig, cluster: Cluster, plan: DevicePlan, target: str, **settings: Any
) -> Any:
    """Returns a tf.estimator.RunConfig for training as a task of a cluster.

    The master's RunConfig contains no cluster, only the target of its sessions. So Estimator
    evaluates in this process after each checkpoint, whatever the platform calls the master.

    Args:
      config: the settings.
      cluster: the addresses of all tasks, and which task this process is.
      plan: this machine's devices.
      target: the address of this trainer's server, for sessions.
      **settings: further arguments of RunConfig.
    """
    tf_config: dict[str, Any] = {}
    if not cluster.is_master:
        tf_config["cluster"] = {job: list(tasks) for job, tasks in cluster.jobs.items()}
        tf_config["task"] = {"type": cluster.task_type, "index": cluster.task_index}
    os.environ["TF_CONFIG"] = json.dumps(tf_config)  # `cifar10.main` has removed the user's.
    try:
        return _RunConfig(
            target,
            session_config=session_config(config, cluster, plan),
            device_fn=_training_devices(cluster),
            session_creation_timeout_secs=max(_LEAST_SESSION_SECS, int(config.cluster_timeout) + 1),
            **settings,
        )
    finally:
        del os.environ["TF_CONFIG"]


def session_config(config: TrainConfig, cluster: Cluster, plan: DevicePlan) -> Any:
    """Returns the tf.ConfigProto of a trainer's sessions, which see only the tasks they need."""
    is_in_graph = config.replication == "in-graph"
    return server.with_filters(
        plan.session_config, [] if is_in_graph else [f"/job:{PS}", cluster.device]
    )


class _RunConfig(tf.estimator.RunConfig):
    """Makes training's sessions run on the server at `target`, whatever TF_CONFIG contains.

    Estimator reads the target from the property `master`, and copies the object and its attributes.
    """

    def __init__(self, target: str, **settings: Any) -> None:
        self.target = target
        super().__init__(**settings)

    @property
    def master(self) -> str:
        """The address of the server for sessions."""
        return self.target


def _training_devices(cluster: Cluster) -> Callable[[Any], str]:
    """Returns a device function that places training's ops on this task.

    It places plain variables on the first parameter server. Estimator uses the same function for
    the evaluations between training steps, whose graphs must stay in this process. The training
    graph is the first one that the function is called for.
    """
    place = tf.train.replica_device_setter(
        ps_tasks=len(cluster.ps_addresses),
        worker_device=cluster.device,
        ps_strategy=lambda op: 0,
    )
    graphs: list[Any] = []

    def device(op: Any) -> str:  # A function, since Estimator deep-copies any other object.
        if not graphs:
            graphs.append(op.graph)
        return str(op.device if place is None or op.graph is not graphs[0] else place(op))

    return device
