"""A task that only serves: a parameter server, or a worker of an in-graph cluster.

It stores variables and runs the ops that the trainers' sessions send, and needs no data. It ends
with exit code 0 once training is over: trainers tell it of their end.
"""

import time
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import server
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.peers import Peers
from cifar10.cluster.server import Board, Identity
from cifar10.cluster.spec import PS, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.host.process import Stay, StopRequest, say
from cifar10.output import run_file
from cifar10.step.devices import plan_devices, use_devices

_LISTEN_SECS = 0.2
_GRACE_SECS = 7.0  # for the remaining trainers, after the master has told of its end


def serve(config: TrainConfig, cluster: Cluster, stop: StopRequest) -> None:
    """Serves until training is over.

    Args:
      config: the settings; a parameter server uses only the timeout, the replication and the
        output folder, if it sees that.
      cluster: the addresses of all tasks, and which task this process is.
      stop: knows whether a signal has arrived.

    Raises:
      ConfigError: the master belongs to another job.
      TrainingError: the master does not answer for too long.
      Stopped: a signal arrived.
    """
    session_config, gpus = _plan(config, cluster)
    use_devices(session_config, gpus)
    board, master = Board(server.start(cluster, session_config)), cluster.master
    trainers = cluster.trainers if config.replication == "between-graph" else [master]
    peers = Peers(trainers, config.cluster_timeout, Acquaintance(cluster, [master]).meet)
    peers.start()
    say(f"{cluster.label} serves at {cluster.own.address}")
    stay = Stay(stop, lambda: peers.is_here(master))
    waiting = {one.role: one for one in trainers}  # those that have not told of their end
    ended_at: Optional[float] = None  # when the master has told of its end
    try:
        while waiting:
            stay.check()
            for sender in board.ended():
                if _is_of_this_run(sender, cluster, board.master()):
                    waiting.pop(sender.role, None)
            if master.role in waiting:
                if peers.missing([master]) and _is_over(config.output_place):
                    break  # This task was started after the end.
                peers.require([master])
            else:
                ended_at = ended_at or time.monotonic()
                is_late = time.monotonic() - ended_at > _GRACE_SECS
                if is_late or not any(map(peers.is_here, waiting.values())):
                    break
            time.sleep(_LISTEN_SECS)
    finally:
        peers.stop()
    say(f"{cluster.label} ends: training is over")


def _is_of_this_run(sender: Identity, cluster: Cluster, master: Optional[Identity]) -> bool:
    """Returns whether a trainer belongs to this job, and to the run that uses this task."""
    return sender.job == cluster.known_by and (master is None or sender.run == master.run)


def _is_over(output_place: str) -> bool:
    note = run_file.read(output_place).training
    return note is not None and note["ended_at_step"] is not None


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
