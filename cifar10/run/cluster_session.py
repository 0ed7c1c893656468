"""A trainer in a cluster: its server, and the tasks that it needs."""

import contextlib
import threading
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import identity, server
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.identity import Identity, Terms
from cifar10.cluster.peers import Peers
from cifar10.cluster.spec import PS, WORKER, Cluster, Task
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, TrainingError, TrainingOver, UserError
from cifar10.host.activity import EVALUATION, SAVING, START
from cifar10.host.console import say
from cifar10.host.signals import STAY_SECS, Stay, StopRequest
from cifar10.output import run_file
from cifar10.run import cluster_training
from cifar10.run.watchdog import Watchdog
from cifar10.step.devices import DevicePlan
from cifar10.step.params import Replication
from cifar10.tf_internals import session_wait

_TELL_AGAIN_SECS = 2.0
_MEET_AGAIN_SECS = 0.2
# After a signal, the master waits for so long for a worker that does not answer. It can save
# without that worker, and platforms wait at least 10 s before they kill.
_WORKER_STAY_SECS = 4.0


class ClusterSession:
    """A trainer of a cluster whose server runs.

    Args:
      config: the settings.
      cluster: the addresses of all tasks, and which task this process is.
      plan: this machine's devices.
      trains: whether there is anything left to train; otherwise no other task is needed.
      terms: what this trainer must agree on with the others.

    Attributes:
      target: the address of this trainer's server, for sessions.
      watchdog: ends this process without the tasks that it needs.

    Raises:
      ConfigError: the server's port is not available.
    """

    def __init__(
        self,
        config: TrainConfig,
        cluster: Cluster,
        plan: DevicePlan,
        trains: bool = True,
        terms: Optional[Terms] = None,
    ) -> None:
        self.config, self.cluster, self.plan, self.trains = config, cluster, plan, trains
        self.watchdog = Watchdog()
        self._watched = contextlib.ExitStack()
        self._in_graph = cluster_training.is_in_graph(config)
        # How many gradients of workers each update of this master waits for; 0: it waits for none.
        least = cluster_training.replicas_to_aggregate(config, cluster) or 1
        self._least_workers = least - 1 if cluster.is_master else 0
        others = [one for one in cluster.tasks if one != cluster.own]
        self._servers, self._workers = cluster.of(PS), cluster.of(WORKER)
        self._always = [one for one in others if one in (*self._servers, cluster.master)]
        self._serving = [*self._servers, *(self._workers if self._in_graph else [])]
        asked = others if cluster.is_master else self._always
        own = Identity.of(cluster, *_run(config, cluster), terms)
        self.target = server.start(cluster, plan.session_config, own)
        self._acquaintance = Acquaintance(cluster, asked, self._serving, own)
        self._peers = Peers(others, config.cluster_timeout, self._acquaintance.meet)
        self._closed, self._is_told = threading.Event(), False
        session_wait.look_often(self.target, self.meet_serving)

    def join(self, check: Callable[[], None]) -> None:
        """Waits for the tasks without which no session can start, and watches them afterwards.

        If there is nothing left to train, it returns immediately.

        Args:
          check: a function that is called repeatedly; it raises an exception to end the waiting.

        Raises:
          ConfigError: one of these tasks belongs to another job.
          TrainingError: one of these tasks does not answer in time.
        """
        if not self.trains:
            return
        self._peers.start()
        needed = [one for tasks, _ in self._needs() for one in tasks]
        try:
            self._peers.wait_for(needed, check, say)
        except BaseException:
            self.close()
            raise
        self._watched.enter_context(self.watchdog.watching(lambda: self._check_peers(check)))

    def _needs(self) -> list[tuple[list[Task], int]]:
        """Returns whom this trainer needs at the moment: of each list at least so many."""
        if not self.trains:
            return []
        needs, activity = [(self._always, len(self._always))], self.watchdog.activity
        # A master that saves or validates does not need the workers, and its checkpoint must become
        # whole. In-graph, all machines take part in its steps, and as its sessions begin.
        if self._in_graph and activity.phase not in (SAVING, EVALUATION):
            needs.append((self._workers, len(self._workers)))
        elif self._least_workers and activity.is_in_step:
            needs.append((self._workers, self._least_workers))
        return needs

    def _check_peers(self, check: Callable[[], None]) -> None:
        """Raises what ends this trainer if too few of the tasks that it needs are there.

        Whether training is over, `check` knows; the main thread handles signals itself, and a file
        that cannot be read at the moment says nothing.
        """
        for tasks, at_least in self._needs():
            for line in self._peers.news(tasks):  # By itself, since a terminal may block.
                threading.Thread(target=_say, args=(line,), daemon=True, name="news").start()
            if self._peers.silent(tasks, 0.0):
                try:
                    check()
                except TrainingOver:
                    raise
                except (Stopped, UserError, OSError, tf.errors.OpError):
                    pass
            self._peers.require(tasks, at_least)

    def hears_all(self) -> bool:
        """Returns whether the tasks answer that this trainer needs at the moment."""
        return all(
            len(tasks) - len(self._peers.silent(tasks)) >= at_least
            for tasks, at_least in self._needs()
        )

    def meet_serving(self) -> None:
        """Checks that the tasks that serve belong to this run; waits while one does not answer.

        It is called for each new session, since one of them may have been replaced meanwhile. A
        master claims them, always in the same order, so that of two masters one gets them all.

        Raises:
          ConfigError: one of these tasks belongs to another job or run.
          TrainingError: one of these tasks does not answer in time.
        """
        # The step is over in which a ps has ended. A worker waits for its master's session, for
        # which there is a time limit of its own.
        self.watchdog.activity.begin(START if self.cluster.is_master else None)
        self._acquaintance.claims = self.cluster.is_master
        timeout_secs, began = self.config.cluster_timeout, time.monotonic()
        while True:
            self._peers.wait_for(self._serving)  # The watchdog handles signals meanwhile.
            silent = next((one for one in self._serving if not self._acquaintance.meet(one)), None)
            if silent is None:
                return
            if time.monotonic() - began > timeout_secs:
                raise TrainingError(
                    f"{silent.label} answers, but has not said for {timeout_secs:g} s "
                    "(--cluster-timeout) which job it belongs to; start it again, and then this "
                    "task"
                )
            time.sleep(_MEET_AGAIN_SECS)

    def stay_for_the_master(self, stop: StopRequest) -> Stay:
        """Returns how long this trainer keeps training for the master after a signal.

        The process is ended after that time.
        """
        stay = Stay(stop, lambda: self._peers.is_here(self.cluster.master))
        self._watched.enter_context(self.watchdog.watching(stay.check))
        return stay

    def heed_signals(self, stop: StopRequest) -> None:
        """Ends this master after a signal if a task that it needs hangs or is gone.

        Otherwise the master ends its step and saves, however long that takes. To save, it needs the
        parameter servers, but no worker.
        """

        def check() -> None:
            if stop.requested and self._waits_in_vain():
                stop.check()

        self._watched.enter_context(self.watchdog.watching(check))

    def _waits_in_vain(self) -> bool:
        """Returns whether a task that this master needs has been silent for some seconds.

        If workers have only gone, they do not count: after a signal, they leave in good order.
        """
        if self._peers.silent(self._servers, STAY_SECS):
            return True
        if not self.watchdog.activity.is_in_step:
            return False
        silent = self._peers.silent(self._workers, _WORKER_STAY_SECS)
        if self._in_graph:
            return bool(silent)
        is_short = len(self._workers) - len(silent) < self._least_workers
        return is_short and any(map(self._peers.is_here, silent))

    def replication(self) -> Replication:
        """Returns this trainer's replication; see `cluster_training.replication`."""
        return cluster_training.replication(
            self.config, self.cluster, self.plan, self.target if self.trains else None
        )

    def describe(self, place: Replication) -> str:
        """Describes the cluster and its kind of training in one line for people."""
        return cluster_training.describe(self.config, self.cluster, place)

    def as_dict(self, place: Replication) -> dict[str, Any]:
        """Returns the entry of result.json that describes the cluster."""
        return cluster_training.as_dict(self.config, self.cluster, place)

    def run_config(self, **settings: Any) -> Any:
        """Returns a tf.estimator.RunConfig for training as this task."""
        return cluster_training.run_config(
            self.config, self.cluster, self.plan, self.target, **settings
        )

    def tell_end(self) -> None:
        """Tells the tasks that only serve that this trainer no longer needs them.

        A master keeps telling them until `close`, since a task may be started again meanwhile.
        """
        if self._is_told:
            return
        self._is_told = True
        self._peers.stop()
        server.tell_end(self._serving, self._acquaintance.identity)
        if self.cluster.is_master:
            threading.Thread(target=self._keep_telling, daemon=True, name="tell").start()

    def _keep_telling(self) -> None:
        while not self._closed.wait(_TELL_AGAIN_SECS):
            server.tell_end(self._serving, self._acquaintance.identity)

    def close(self) -> None:
        """Ends what this trainer asks and tells other tasks."""
        self._closed.set()
        self._peers.stop()
        self._watched.close()


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # For example, the disk of the log is full.
        say(line)


def _run(config: TrainConfig, cluster: Cluster) -> tuple[str, str]:
    """Returns key and place of this master's run; both are empty in a worker, which learns them."""
    if not cluster.is_master:
        return "", ""
    key = cluster.token or identity.digest(run_file.read_or_make_owner(config.output_place))
    return key, run_file.place(config.output_place)
