"""How the trainers of a cluster share a step: on which devices, with whose gradients, in words."""

from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import shutdown
from cifar10.cluster.spec import MASTER, PS, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.run.cluster_run_config import session_config
from cifar10.step.devices import DevicePlan
from cifar10.step.params import Replication


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
    homes = [(PS, index) for index in range(len(cluster.ps_addresses))] or [(MASTER, 0)]
    shared: dict[str, Any] = {
        "variable_devices": tuple(shutdown.task_device(*task) for task in homes),
        "task_device": cluster.device,
        "transfer_dtype": tf.bfloat16 if config.ps_transfer == "bf16" else tf.float32,
    }
    own_towers = tuple(f"{cluster.device}{one}" for one in plan.tower_devices)
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
        replica=cluster.replica,
        replicas_to_aggregate=replicas_to_aggregate(config, cluster),
        **shared,
    )


def describe(config: TrainConfig, cluster: Cluster, place: Replication) -> str:
    """Describes the cluster and its kind of training in one line for people."""
    count, servers = cluster.num_trainers, len(cluster.ps_addresses)
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
    for job, index in cluster.trainers:
        task = f"/job:{job}/replica:0/task:{index}/"
        gpus = [name for name in names if name.startswith(task) and ":GPU:" in name]
        if not gpus:
            towers += [shutdown.task_device(job, index)] * plan.num_towers
            continue
        count = config.num_towers or len(gpus)
        if count % len(gpus):
            raise ConfigError(
                f"--num-towers must be a multiple of the GPUs, got {count} towers on the "
                f"{len(gpus)} GPUs of {cluster.label_of(job, index)}; --num-gpus says there how "
                "many to use"
            )
        towers += [gpus[number % len(gpus)] for number in range(count)]
    return tuple(towers)
