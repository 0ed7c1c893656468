"""How a trainer of a cluster trains with the others: what must be alike, and where ops are."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import server
from cifar10.cluster.spec import PS, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.input.records import RecordSet
from cifar10.schema import TRAIN
from cifar10.settings import flag_name, flag_of
from cifar10.step.devices import DevicePlan
from cifar10.step.params import Replication
from cifar10_program import VERSION

_OF_TRAINERS = ("sync", "replicas_to_aggregate", "replication", "ps_transfer")
_NOT_TRAINED_BY = ("test_time_augmentation",)
_CHARS = 8  # of a digest
# The least time that a worker waits for a session of a master that answers. The master may be
# building its graph, and --cluster-timeout is for tasks that do not answer.
_LEAST_SESSION_SECS = 60


def terms(config: TrainConfig, records: RecordSet) -> dict[str, str]:
    """Returns what decides the steps of all trainers: settings by flag, the code, the records."""
    settings = {
        flag_name(field.name): str(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if flag_of(field).group in ("model", "training") or field.name in _OF_TRAINERS
        if field.name not in _NOT_TRAINED_BY
    }
    root = Path(__file__).parents[1]
    paths = sorted(root.rglob("*.py"))
    code = b"".join(str(one.relative_to(root)).encode() + one.read_bytes() for one in paths)
    parts = records.fingerprints().get(TRAIN, [])
    return {
        "the program": f"version {VERSION}, {_digest(code)}",
        **settings,
        "the training records": _digest("\n".join(parts).encode()),
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_CHARS]


def is_in_graph(config: TrainConfig) -> bool:
    """Returns whether one process places towers on all machines."""
    return config.replication == "in-graph"


def replicas_to_aggregate(config: TrainConfig, cluster: Cluster) -> Optional[int]:
    """Returns how many replicas' gradients an update waits for; None: it waits for no other.

    It is None in asynchronous and in-graph training, and for a single trainer.
    """
    if not config.sync or is_in_graph(config) or cluster.num_trainers == 1:
        return None
    return config.replicas_to_aggregate or cluster.num_trainers


def replication(
    config: TrainConfig, cluster: Cluster, plan: DevicePlan, target: Optional[str]
) -> Replication:
    """Returns a trainer's replication.

    In-graph, it asks all machines for their devices, if there is anything left to train.

    Args:
      config: the settings.
      cluster: the addresses of all tasks, and which task this process is.
      plan: this machine's devices.
      target: the address of this trainer's server; None if there is nothing left to train.

    Raises:
      ConfigError: --num-towers is not a multiple of a machine's number of GPUs.
    """
    homes, device = cluster.of(PS) or [cluster.master], cluster.own.device
    shared: dict[str, Any] = {
        "variable_devices": tuple(one.cpu for one in homes),
        "task_device": device,
        "transfer_dtype": tf.bfloat16 if config.ps_transfer == "bf16" else tf.float32,
    }
    own_towers = tuple(f"{device}{one}" for one in plan.tower_devices)
    if is_in_graph(config):
        return Replication(
            tower_devices=(
                own_towers if target is None else _all_towers(config, cluster, plan, target)
            ),
            num_machines=cluster.num_trainers,
            **shared,
        )
    return Replication(
        tower_devices=own_towers,
        num_replicas=cluster.num_trainers,
        replica=cluster.trainers.index(cluster.own),
        replicas_to_aggregate=replicas_to_aggregate(config, cluster),
        **shared,
    )


def _all_towers(
    config: TrainConfig, cluster: Cluster, plan: DevicePlan, target: str
) -> tuple[str, ...]:
    """Returns the devices of the towers of all machines.

    A machine with GPUs has --num-towers towers, by default one per GPU. A machine without GPUs
    has as many towers on its CPU as this machine has towers.
    """
    with tf.Session(target, config=session_config(config, cluster, plan)) as session:
        names = [device.name for device in session.list_devices()]
    towers = []
    for task in cluster.trainers:
        own = f"/job:{task.job}/replica:0/task:{task.index}/"
        gpus = [name for name in names if name.startswith(own) and ":GPU:" in name]
        if not gpus:
            towers += [task.cpu] * plan.num_towers
            continue
        count = config.num_towers or len(gpus)
        if count % len(gpus):
            raise ConfigError(
                f"--num-towers must be a multiple of the GPUs, got {count} towers on the "
                f"{len(gpus)} GPUs of {task.label}; --num-gpus says there how many to use"
            )
        towers += [gpus[number % len(gpus)] for number in range(count)]
    return tuple(towers)


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
    tf_config: dict[str, Any] = {"session_master": target}
    if not cluster.is_master:
        tf_config["cluster"] = {job: list(tasks) for job, tasks in cluster.jobs.items()}
        tf_config["task"] = {"type": cluster.task_type, "index": cluster.task_index}
    os.environ["TF_CONFIG"] = json.dumps(tf_config)  # `cifar10.main` has removed the user's.
    try:
        return tf.estimator.RunConfig(
            session_config=session_config(config, cluster, plan),
            device_fn=_training_devices(cluster),
            session_creation_timeout_secs=max(_LEAST_SESSION_SECS, int(config.cluster_timeout) + 1),
            **settings,
        )
    finally:
        del os.environ["TF_CONFIG"]


def session_config(config: TrainConfig, cluster: Cluster, plan: DevicePlan) -> Any:
    """Returns the tf.ConfigProto of a trainer's sessions, which see only the tasks they need."""
    seen = [] if is_in_graph(config) else [f"/job:{PS}", cluster.own.device]
    return server.with_filters(plan.session_config, seen)


def _training_devices(cluster: Cluster) -> Callable[[Any], str]:
    """Returns a device function that places training's ops on this task.

    It places plain variables on the first parameter server. Estimator uses the same function for
    the evaluations between training steps, whose graphs must stay in this process. The training
    graph is the first one that the function is called for.
    """
    place = tf.train.replica_device_setter(
        ps_tasks=len(cluster.of(PS)),
        worker_device=cluster.own.device,
        ps_strategy=lambda op: 0,
    )
    graphs: list[Any] = []

    def device(op: Any) -> str:  # A function, since Estimator deep-copies any other object.
        if not graphs:
            graphs.append(op.graph)
        return str(op.device if place is None or op.graph is not graphs[0] else place(op))

    return device


def describe(config: TrainConfig, cluster: Cluster, place: Replication) -> str:
    """Describes the cluster and its kind of training in one line for people."""
    count, servers = cluster.num_trainers, len(cluster.of(PS))
    how = "asynchronous"
    if is_in_graph(config):
        how = "in-graph"
    elif place.replicas_to_aggregate:
        how = f"synchronous, {place.replicas_to_aggregate} of {count} gradients an update"
    images = place.examples_per_step(config.train_batch_size)
    return (
        f"{cluster.label} of {count} trainer{'s' * (count != 1)} and {servers} parameter "
        f"server{'s' * (servers != 1)}, {how}, {images} images a global step"
    )


def as_dict(config: TrainConfig, cluster: Cluster, place: Replication) -> dict[str, Any]:
    """Returns the entry of result.json that describes the cluster."""
    return {
        "task": cluster.label,
        "tasks": {job: list(tasks) for job, tasks in cluster.platform_jobs.items()},
        "replication": config.replication,
        "gradients_an_update": place.replicas_to_aggregate,
        "images_a_global_step": place.examples_per_step(config.train_batch_size),
    }
