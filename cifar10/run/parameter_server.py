"""A task that only serves: a parameter server, or a worker of an in-graph cluster.

It stores variables and runs the ops that the trainers' sessions send, and needs no data. It ends
with exit code 0 once training is over.
"""

import time
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.cluster import introduction, server, shutdown
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.identity import Identity
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.spec import MASTER, PS, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import TrainingError
from cifar10.host.console import say
from cifar10.host.signals import Stay, StopRequest
from cifar10.output import run_file
from cifar10.step.devices import plan_devices, use_devices

_LISTEN_SECS = 0.2


def serve(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Serves until training is over.

    Args:
      config: the settings; a parameter server uses only the timeout and the replication.
      cluster: the addresses of all tasks, and which task this process is.
      stop: knows whether a signal has arrived.

    Raises:
      ConfigError: the master belongs to another job.
      TrainingError: the master does not answer for too long.
      Stopped: a signal arrived.
    """
    session_config, gpus = _plan(config, cluster)
    use_devices(session_config, gpus)
    target = server.start(cluster, session_config).target
    introduction.introduce(target, Identity.of(cluster))
    in_graph = config.replication == "in-graph"
    trainers = {
        cluster.label_of(job, index): cluster.address_of(job, index)
        for job, index in cluster.trainers
        if job == MASTER or not in_graph
    }
    acquaintance = Acquaintance(cluster, [cluster.master_label])
    monitor = LivenessMonitor(trainers, config.cluster_timeout, acquaintance.meet)
    monitor.start()
    listener = shutdown.ShutdownListener(cluster, list(trainers), target)
    say(f"{cluster.label} serves at {cluster.address}")
    try:
        source = _until_over(config, cluster.master_label, monitor, listener, stop)
    finally:
        monitor.stop()
    say(f"{cluster.label} ends: training is over{source}")


def _until_over(
    config: TrainConfig,
    master: str,
    monitor: LivenessMonitor,
    listener: shutdown.ShutdownListener,
    stop: StopRequest,
) -> str:
    """Waits until training is over; returns who says so if it is not the master, else "".

    Args:
      config: the settings.
      master: the master's label.
      monitor: knows whether the trainers answer.
      listener: knows which trainers have ended.
      stop: knows whether a signal has arrived.
    """
    stay = Stay(stop, lambda: monitor.is_here(master))
    has_seen_master = False
    monitor.say_who_is_silent([master], say, lambda: has_seen_master and not listener.master_ended)
    while not listener.is_over:
        stay.check()
        listener.listen()
        if listener.master_ended and not any(monitor.is_here(label) for label in listener.waiting):
            break
        has_seen_master = has_seen_master or monitor.is_here(master)
        late = None if listener.master_ended else monitor.missing([master])
        if late and not has_seen_master and _is_over(config):
            return f" according to {config.output_place}; {master} does not answer"
        if late:
            raise TrainingError(late)
        if not listener.master_ended:
            monitor.refuse_wrong([master])
        time.sleep(_LISTEN_SECS)
    return ""


def _is_over(config: TrainConfig) -> bool:
    """Returns whether training is over, if this task sees the output folder.

    It matters only to a task that was started after the end: a master that runs reports its end.
    """
    note = run_file.read(config.output_place).training
    return note is not None and note["ended_at_step"] is not None


def _plan(config: TrainConfig, cluster: Cluster) -> tuple[tf.ConfigProto, tuple[Any, ...]]:
    """Returns the server's session configuration, and the GPUs that it may use."""
    if cluster.task_type != PS:
        plan = plan_devices(config, cluster.host_share)
        return plan.session_config, plan.gpus
    # A parameter server leaves the GPUs of its machine, and almost all of the cores, to the
    # trainers: it mostly moves bytes, for which more threads are of no use.
    threads = 1 if cluster.shares_host_with_trainers else 0
    session_config = tf.ConfigProto(
        device_count={"GPU": 0},
        allow_soft_placement=True,
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
    )
    return session_config, ()
