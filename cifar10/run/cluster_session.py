"""A trainer in a cluster: its server, and the tasks that it needs."""

import contextlib
import threading
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.cluster import identity, introduction, server, shutdown
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.identity import Identity, Owner, Terms
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.spec import PS, WORKER, Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, TrainingError, TrainingOver, UserError
from cifar10.host.activity import EVALUATION, SAVING, Activity
from cifar10.host.console import say
from cifar10.host.signals import STAY_SECS, Stay, StopRequest
from cifar10.output import run_owner
from cifar10.run import cluster_replication, cluster_run_config
from cifar10.run.process_guard import ProcessGuard
from cifar10.step.devices import DevicePlan
from cifar10.step.params import Replication
from cifar10.tf_internals import session_wait

_TELL_AGAIN_SECS = 2.0
_CLOSING_SECS = 5.0
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
      target: the address of this trainer's server, for sessions.
      trains: whether there is anything left to train; otherwise no other task is needed.
      owner: the owner of the master's run; None for a worker, which learns it from the master.
      terms: what this trainer must agree on with the others.

    Attributes:
      session_begins: function that is called before each new session of training is made.
    """

    def __init__(
        self,
        config: TrainConfig,
        cluster: Cluster,
        plan: DevicePlan,
        target: str,
        trains: bool = True,
        owner: Optional[Owner] = None,
        terms: Terms = None,
    ) -> None:
        self.trains = trains
        self.session_begins: Callable[[], None] = lambda: None
        self.config, self.cluster, self.plan, self.target = config, cluster, plan, target
        others = {
            cluster.label_of(job, index): address
            for job, tasks in cluster.jobs.items()
            for index, address in enumerate(tasks)
        }
        del others[cluster.label]
        self._servers = [cluster.label_of(PS, index) for index in range(len(cluster.ps_addresses))]
        needed = {*self._servers, cluster.master_label}
        self._needed = [one for one in others if self.in_graph or one in needed]
        self._serving = [one for one in self._needed if one != cluster.master_label]
        asked = [*self._needed, *(self._workers if cluster.is_master else [])]
        self._acquaintance = Acquaintance(cluster, asked, self._serving, owner, terms)
        self._monitor = LivenessMonitor(others, config.cluster_timeout, self._acquaintance.meet)
        self._guard = ProcessGuard(self._monitor)
        self._noted: Optional[Activity] = None
        self._teller: Optional[threading.Thread] = None
        self._closed = threading.Event()

    @classmethod
    def start(
        cls,
        config: TrainConfig,
        cluster: Cluster,
        plan: DevicePlan,
        trains: bool = True,
        terms: Terms = None,
    ) -> "ClusterSession":
        """Starts this trainer's server; `join` waits for the servers of other tasks.

        Raises:
          ConfigError: the server's port is not available.
        """
        owner = _owner(config, cluster) if cluster.is_master else None
        target = server.start(cluster, plan.session_config).target
        introduction.introduce(target, Identity.of(cluster, owner, terms))
        session = cls(config, cluster, plan, target, trains, owner, terms)
        session_wait.look_often(target, session.meet_serving)
        return session

    @property
    def in_graph(self) -> bool:
        """Whether one process places towers on all machines."""
        return cluster_replication.is_in_graph(self.config)

    @property
    def _replicas_to_aggregate(self) -> Optional[int]:
        return cluster_replication.replicas_to_aggregate(self.config, self.cluster)

    @property
    def _waits_for_workers(self) -> bool:
        """Whether this process is a master whose updates wait for gradients of workers."""
        return self._replicas_to_aggregate is not None and self.cluster.is_master

    @property
    def _least_workers(self) -> int:
        """The number of workers whose gradients each update of this master waits for."""
        return (self._replicas_to_aggregate or 1) - 1

    @property
    def _workers(self) -> list[str]:
        count = self.cluster.num_trainers - 1
        return [self.cluster.label_of(WORKER, index) for index in range(count)]

    def join(self, check: Callable[[], None]) -> None:
        """Waits for the tasks without which no session can start, and monitors them afterwards.

        If there is nothing left to train, it returns immediately.

        Args:
          check: a function that is called repeatedly; it raises an exception to end the waiting.

        Raises:
          ConfigError: one of these tasks belongs to another job.
          TrainingError: one of these tasks does not answer in time.
        """
        if not self.trains:
            return
        self._monitor.start()
        try:
            self._monitor.wait_for(self._needed, check, say)
        except BaseException:
            self.close()
            raise
        always = [one for one in self._needed if one not in self._workers]
        self._guard.end_without(always, is_over=lambda: _is_over(check))
        if self.in_graph:
            # All machines take part in its steps, and in the beginning of its sessions.
            self._guard.end_without(
                self._workers, is_needed=lambda: self._phase not in (SAVING, EVALUATION)
            )
        self._monitor.say_who_is_silent(self._needed, say)

    def watch_steps(self, noted: Activity) -> None:
        """Watches the workers that this master's steps wait for.

        It says which workers do not answer, and ends the process if too many stay away.

        Args:
          noted: what the main thread does.
        """
        if not self.trains:
            return
        self._noted = noted
        if self._waits_for_workers:
            # Before and after training, and during validation, workers come and go. A master that
            # saves does not need them, and its checkpoint must become whole.
            self._monitor.say_who_is_silent(self._workers, say, lambda: noted.is_in_step)
            self._guard.end_without(
                self._workers, self._least_workers, is_needed=lambda: noted.is_in_step
            )

    @property
    def hears_all(self) -> bool:
        """Whether all tasks answer that this trainer's steps need."""
        if not self.trains:
            return True
        if any(self._monitor.is_silent(one) for one in self._needed):
            return False
        return not self._waits_for_workers or not self._too_many(self._monitor.is_silent)

    @property
    def _phase(self) -> Optional[str]:
        """What the main thread does; None before training, when all machines are needed."""
        return self._noted.phase if self._noted else None

    def meet_serving(self) -> None:
        """Checks that the tasks that serve belong to this run; waits while one does not answer.

        It is called for each new session, since one of them may have been replaced meanwhile. A
        master claims them, always in the same order, so that of two masters one gets them all.

        Raises:
          ConfigError: one of these tasks belongs to another job or run.
          TrainingError: one of these tasks does not answer in time.
        """
        self.session_begins()
        self._acquaintance.start_claiming()
        timeout_secs, began = self.config.cluster_timeout, time.monotonic()
        while True:
            # While it waits, other threads handle signals and the end of training.
            self._monitor.wait_for(self._serving, lambda: None, lambda _: None)
            silent = next((one for one in self._serving if not self._acquaintance.meet(one)), None)
            if silent is None:
                return
            if time.monotonic() - began > timeout_secs:
                raise TrainingError(
                    f"{silent} answers, but has not said for {timeout_secs:g} s "
                    "(--cluster-timeout) which job it belongs to; start it again, and then this "
                    "task"
                )
            time.sleep(_MEET_AGAIN_SECS)

    def stay_for_the_master(self, stop: StopRequest) -> Stay:
        """Returns how long this trainer keeps training for the master after a signal.

        The process is ended after that time.
        """
        stay = Stay(stop, lambda: self._monitor.is_here(self.cluster.master_label))
        self._guard.end_when(stay.check)
        return stay

    def heed_signals(self, stop: StopRequest, is_in_step: Callable[[], bool]) -> None:
        """Ends this master after a signal if a task that it needs hangs or is gone.

        Otherwise the master ends its step and saves, however long that takes. To save, it needs the
        parameter servers, but no worker.

        Args:
          stop: knows whether a signal has arrived.
          is_in_step: function that returns whether the main thread is inside a training step.
        """

        def check() -> None:
            if stop.requested and self._waits_in_vain(is_in_step()):
                stop.check()

        if self.trains:
            self._guard.end_when(check)

    def replication(self) -> Replication:
        """Returns this trainer's replication; see `cluster_replication.replication`."""
        return cluster_replication.replication(
            self.config, self.cluster, self.plan, self.target if self.trains else None
        )

    def describe(self, place: Replication) -> str:
        """Describes the cluster and its kind of training in one line for people."""
        return cluster_replication.describe(self.config, self.cluster, place)

    def as_dict(self, place: Replication) -> dict[str, Any]:
        """Returns the entry of result.json that describes the cluster."""
        return cluster_replication.as_dict(self.config, self.cluster, place)

    def run_config(self, **settings: Any) -> Any:
        """Returns a tf.estimator.RunConfig for training as this task."""
        return cluster_run_config.run_config(
            self.config, self.cluster, self.plan, self.target, **settings
        )

    def tell_end(self) -> None:
        """Tells the tasks that only serve that this trainer no longer needs them.

        A master keeps telling them until `close`, since a task may be started again meanwhile.
        """
        if self._teller:
            return
        self._monitor.stop()
        self._tell()
        self._teller = threading.Thread(target=self._keep_telling, daemon=True, name="tell")
        if self.cluster.is_master:
            self._teller.start()

    def close(self) -> None:
        """Ends the threads that ask and tell other tasks; waits a moment for the latter."""
        self._closed.set()
        self._monitor.stop()
        if self._teller and self._teller.is_alive():
            self._teller.join(_CLOSING_SECS)

    def _keep_telling(self) -> None:
        while not self._closed.wait(_TELL_AGAIN_SECS):
            # A task may end or start at any moment meanwhile; the next call tells it again.
            with contextlib.suppress(tf.errors.OpError):
                self._tell()

    def _tell(self) -> None:
        serving = [(PS, index) for index in range(len(self.cluster.ps_addresses))]
        if self.in_graph:
            serving += [task for task in self.cluster.trainers if task[0] == WORKER]
        shutdown.tell(self.cluster, serving, self.target, self._acquaintance.identity)

    def _waits_in_vain(self, is_in_step: bool) -> bool:
        """Returns whether a task that this master needs has been silent for some seconds.

        If workers have only gone, they do not count: after a signal, they leave in good order.
        """
        if self._monitor.missing(self._servers, timeout_secs=STAY_SECS):
            return True
        if not is_in_step:
            return False
        if self.in_graph:
            return self._monitor.missing(self._needed, timeout_secs=_WORKER_STAY_SECS) is not None
        return (
            self._waits_for_workers
            and any(self._monitor.hangs(one, _WORKER_STAY_SECS) for one in self._workers)
            and self._too_many(lambda one: self._monitor.is_silent(one, _WORKER_STAY_SECS))
        )

    def _too_many(self, is_lost: Callable[[str], bool]) -> bool:
        """Returns whether updates wait for a worker that is lost."""
        return sum(not is_lost(one) for one in self._workers) < self._least_workers


def _owner(config: TrainConfig, cluster: Cluster) -> Owner:
    """Returns the owner of this master's run: the job token, or else the output folder's number."""
    number = cluster.token or identity.digest(run_owner.read_or_make(config.output_place))
    return Owner(number, run_owner.place(config.output_place))


def _is_over(check: Callable[[], None]) -> bool:
    """Returns whether `check` raises TrainingOver; the main thread handles signals itself.

    A file that cannot be read at the moment says nothing.
    """
    try:
        check()
    except TrainingOver:
        return True
    except (Stopped, UserError, OSError, tf.errors.OpError):
        return False
    return False
