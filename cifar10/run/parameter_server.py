"""A task that only serves: a parameter server, or a worker of an in-graph cluster.

It stores variables and runs the ops that the trainers' sessions send, and needs no data. It ends
with exit code 0 once training is over: the chief tells it.
"""

import time
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import PS, WORKER, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.guard import server
from cifar10.guard.handshake import Handshake
from cifar10.guard.peers import Peers
from cifar10.guard.server import Registry, TaskIdentity
from cifar10.host.process import StopRequest, log
from cifar10.output import run_file
from cifar10.step.devices import plan_devices, use_devices

_LISTEN_SECS = 0.2
_GRACE_SECS = 7.0  # for the workers that are still there, after the chief has told of its end


def serve(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Serves until training is over.

    Args:
      config: the settings; a parameter server uses only the timeout, the replication and the
        output folder, if it sees that.
      cluster: the addresses of all tasks, and which task this process is.
      stop: knows whether a signal has arrived.

    Raises:
      ConfigError: the chief belongs to another job.
      TrainingError: the chief does not answer for too long.
      Stopped: a signal arrived.
    """
    session_config, gpus = _plan(config, cluster)
    use_devices(session_config, gpus)
    own = TaskIdentity.of(cluster)
    server.start(cluster, session_config, own)
    registry, chief = Registry(cluster.own.target), cluster.master
    workers = cluster.of(WORKER) if config.replication == "between-graph" else []
    handshake = Handshake(cluster, serving=[], identity=own)
    # Whether the workers are there is all that it needs to know of them.
    seen = [chief, *workers]
    peers = Peers(seen, config.cluster_timeout, lambda task: task != chief or handshake.meet(task))
    peers.start()
    log(f"{cluster.label} serves at {cluster.own.address}")
    try:
        while not registry.has_ended():
            stop.check(lambda: peers.is_here(chief))
            if peers.missing([chief]) and run_file.recorded_end(config.output_path) is not None:
                break  # This task was started after the end.
            peers.require([chief])
            time.sleep(_LISTEN_SECS)
        ended_at = time.monotonic()
        while any(map(peers.is_here, workers)) and time.monotonic() - ended_at < _GRACE_SECS:
            stop.check(lambda: peers.is_here(chief))
            time.sleep(_LISTEN_SECS)
    finally:
        peers.stop()
    log(f"{cluster.label} ends: training is over")


def _plan(config: TrainConfig, cluster: Cluster) -> tuple[tf.ConfigProto, tuple[Any, ...]]:
    """Returns the server's session configuration, and the GPUs that it may use."""
    if cluster.task_type != PS:
        plan = plan_devices(config, cluster.host_share)
        return plan.session_config, plan.gpus
    # A parameter server leaves the GPUs of its machine, and almost all of the cores, to the
    # trainers: it mostly moves bytes, for which more threads are of no use.
    threads = 1 if cluster.trainers_here else 0
    session_config = tf.ConfigProto(
        device_count={"GPU": 0},
        allow_soft_placement=True,
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
    )
    return session_config, ()
