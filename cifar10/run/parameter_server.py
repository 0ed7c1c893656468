"""A task that only serves: a parameter server, or a worker of an in-graph cluster.

It stores variables and runs the ops that the trainers' sessions send, and needs no data. It ends
with exit code 0 once training is over: trainers tell it of their end.
"""

import time
from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import server
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.identity import difference
from cifar10.cluster.peers import Peers
from cifar10.cluster.server import Board
from cifar10.cluster.spec import PS, Cluster, Task
from cifar10.config.train_config import TrainConfig
from cifar10.host.console import say
from cifar10.host.signals import Stay, StopRequest
from cifar10.output import run_file
from cifar10.run.cluster_training import is_in_graph
from cifar10.step.devices import plan_devices, use_devices

_LISTEN_SECS = 0.2
_GRACE_SECS = 7.0  # for the remaining trainers, after the master has told of its end


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
    board = Board(server.start(cluster, session_config))
    trainers = [cluster.master] if is_in_graph(config) else cluster.trainers
    peers = Peers(trainers, config.cluster_timeout, Acquaintance(cluster, [cluster.master]).meet)
    peers.start()
    say(f"{cluster.label} serves at {cluster.own.address}")
    try:
        source = _until_over(config, peers, Ends(cluster, trainers, board), stop)
    finally:
        peers.stop()
    say(f"{cluster.label} ends: training is over{source}")


class Ends:
    """Hears from the trainers of a run that they have ended.

    Args:
      cluster: the cluster and this process's task in it.
      trainers: the trainers; the first one is the master.
      board: what this task's server holds.

    Attributes:
      waiting: the trainers that have not told of their end.
    """

    def __init__(self, cluster: Cluster, trainers: Sequence[Task], board: Board) -> None:
        self.master, self.waiting = trainers[0], list(trainers)
        self._cluster, self._board = cluster, board
        self._master_ended: Optional[float] = None

    def listen(self) -> None:
        """Reads what has arrived since the last call; other jobs and runs do not count."""
        for sender in self._board.ended():
            master = self._board.master()
            if difference(self._cluster, sender) or (master and sender.run != master.run):
                continue
            self.waiting = [one for one in self.waiting if one.role != sender.role]
            if sender.role == self.master.role and self._master_ended is None:
                self._master_ended = time.monotonic()

    @property
    def master_ended(self) -> bool:
        """Whether the master has told of its end, and training is over."""
        return self._master_ended is not None

    @property
    def is_over(self) -> bool:
        """Whether this task may end: the master has, and the others have, or had some seconds."""
        if self._master_ended is None:
            return False
        return not self.waiting or time.monotonic() - self._master_ended > _GRACE_SECS


def _until_over(config: TrainConfig, peers: Peers, ends: Ends, stop: StopRequest) -> str:
    """Waits until training is over; returns who says so if it is not the master, else "".

    Args:
      config: the settings.
      peers: knows whether the trainers answer.
      ends: knows which trainers have ended.
      stop: knows whether a signal has arrived.
    """
    master, has_seen_master = ends.master, False
    stay = Stay(stop, lambda: peers.is_here(master))
    while not ends.is_over:
        stay.check()
        ends.listen()
        has_seen_master = has_seen_master or peers.is_here(master)
        if ends.master_ended:
            if not any(map(peers.is_here, ends.waiting)):
                break
        elif not has_seen_master and peers.missing([master]) and _is_over(config):
            return f" according to {config.output_place}; {master.label} does not answer"
        else:
            peers.require([master])
            for line in peers.news([master] if has_seen_master else []):
                say(line)
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
    threads = 1 if cluster.trainers_here else 0
    session_config = tf.ConfigProto(
        device_count={"GPU": 0},
        allow_soft_placement=True,
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
    )
    return session_config, ()
