"""What watches a process that trains or evaluates; training enters it by a `with` and by hooks.

    with guard.of(params, cluster, records, stop) as guarded:
        estimator.train(input_fn, hooks=[*guarded.hooks, ...])

A process alone is watched for stalls, and ended by signals. In a cluster the guard also starts this
task's server, waits for the tasks that this one needs, and ends this process without them.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10 import tf_internals
from cifar10.cluster.spec import PS, WORKER, Cluster, Task, digest
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, TrainingError, UserError
from cifar10.guard import handshake, server
from cifar10.guard.handshake import Handshake, settings_that_must_match
from cifar10.guard.hooks import EvaluationPhase, SavingPhase, TrainingPhases
from cifar10.guard.peers import Peers
from cifar10.guard.server import TaskIdentity
from cifar10.guard.watchdog import EVALUATION, SAVING, START, StallCheck, watching
from cifar10.host.process import StopRequest
from cifar10.input.records import RecordSet
from cifar10.output import run_file
from cifar10.step.params import ModelParams
from cifar10_program.streams import log_error

_TELL_AGAIN_SECS = 2.0
_MEET_AGAIN_SECS = 0.2


class Guard:
    """What watches a process that trains alone; `ClusterGuard` adds what a cluster needs.

    Attributes:
      stop: knows whether a signal has arrived.
      activity: what the main thread does, and the check that it makes progress.
      hooks: for training, before all others: they note its phases and end it after a signal.
      saving: for the hook that saves: notes that, and after a signal raises Stopped once saved.
      evaluation_hooks: for evaluations: they note batches, and raise Stopped after a signal.
    """

    def __init__(self, config: TrainConfig, stop: StopRequest) -> None:
        self.stop, self.activity = stop, StallCheck(config.stall_timeout)
        self.hooks = [TrainingPhases(stop, self.activity, self._is_ending)]
        self.saving = SavingPhase(stop, self.activity, config.output_path)
        self.evaluation_hooks = [EvaluationPhase(stop, self.activity)]

    def _is_ending(self) -> bool:
        """Returns whether a signal ends training after the current step."""
        return self.stop.requested

    def describe(self, images: int) -> Optional[str]:
        """Returns a line about the cluster; None without one."""
        return None

    def tell_end(self) -> None:
        """Tells the tasks that only serve, if there are any, that training is over."""


class ClusterGuard(Guard):
    """What watches a trainer of a cluster; it starts the server of its task.

    Args:
      params: settings, devices, and the replication of this trainer.
      cluster: the addresses of all tasks, and which task this process is.
      records: the records of the data set.
      stop: knows whether a signal has arrived.

    Raises:
      ConfigError: the server's port is not available.
    """

    def __init__(
        self, params: ModelParams, cluster: Cluster, records: RecordSet, stop: StopRequest
    ) -> None:
        config = params.config
        super().__init__(config, stop)
        self._config, self.cluster, self._replication = config, cluster, params.replication
        self._in_graph = config.replication == "in-graph"
        others = [task for task in cluster.tasks if task != cluster.own]
        self._always = [task for task in others if task.job != WORKER]
        self._workers = cluster.of(WORKER)
        self._serving = [*cluster.of(PS), *(self._workers if self._in_graph else [])]
        run = output_dir = ""  # A worker learns them from its chief.
        if cluster.is_master:
            run = cluster.token or digest(run_file.read_or_make_owner(config.output_path))
            output_dir = run_file.location(config.output_path)
        own = TaskIdentity.of(cluster, run, output_dir, settings_that_must_match(config, records))
        server.start(cluster, params.plan.session_config, own)
        self._handshake = Handshake(cluster, self._serving, own)
        asked = others if cluster.is_master else self._always
        self._peers = Peers(asked, config.cluster_timeout, self._handshake.meet)
        self._closed = threading.Event()
        self.activity.replicas = [task.label for task in cluster.trainers]
        self.activity.replica = params.replication.replica

    def wait_for_tasks(self, check: Callable[[], None]) -> None:
        """Waits for the tasks without which no session can start.

        Args:
          check: a function that is called repeatedly; it raises an exception to end the waiting.

        Raises:
          ConfigError: one of these tasks belongs to another job.
          TrainingError: one of these tasks does not answer in time.
        """
        self._peers.start()
        self.activity.hears_all = self.hears_all
        self._peers.wait_for([task for tasks, _ in self._needs() for task in tasks], check, True)

    def _needs(self) -> list[tuple[list[Task], int]]:
        """Returns whom this trainer needs at the moment: of each list all but so many."""
        needs, activity = [(self._always, 0)], self.activity
        # A chief that saves or validates does not need the workers, and its checkpoint must become
        # whole. In-graph, all machines take part in its steps, and as its sessions begin.
        if self._in_graph and activity.phase not in (SAVING, EVALUATION):
            needs.append((self._workers, 0))
        elif self.cluster.is_master and activity.is_in_step:
            spare = self.cluster.num_trainers - (self._replication.replicas_to_aggregate or 1)
            needs += [(self._workers, spare)] if spare < len(self._workers) else []
        return needs

    def check(self, check: Callable[[], None]) -> None:
        """Raises what ends this trainer if too few of the tasks that it needs are there.

        Whether training is over, `check` knows; the main thread handles signals itself, and a file
        that cannot be read at the moment says nothing. After a signal, a chief ends its step and
        saves, however long that takes, unless a task that it needs hangs or is gone; workers that
        have only gone do not count, except in-graph: they leave in good order.
        """
        for tasks, spare in self._needs():
            for line in self._peers.news(tasks):  # By itself, since a terminal may block.
                threading.Thread(target=log_error, args=(line,), daemon=True, name="news").start()
            if self._peers.silent(tasks, 0.0):
                with contextlib.suppress(Stopped, UserError, OSError, tf.errors.OpError):
                    check()
            lost = self._peers.silent(tasks)
            if tasks is self._workers and not self._in_graph:
                lost = [task for task in lost if self._peers.is_here(task)]
            if self.cluster.is_master and len(lost) > spare:
                self.stop.check()
            self._peers.require(tasks, spare)
        if not self.cluster.is_master:
            self.stop.check(self._is_chief_here)

    def _is_chief_here(self) -> bool:
        return self._peers.is_here(self.cluster.master)

    def hears_all(self) -> bool:
        """Returns whether the tasks answer that this trainer needs at the moment."""
        return all(len(self._peers.silent(tasks)) <= spare for tasks, spare in self._needs())

    def _is_ending(self) -> bool:
        """Returns whether a signal ends training now: a synchronous chief may still need a worker.

        An asynchronous chief needs nobody's gradients.
        """
        if self.cluster.is_master or not self._config.sync:
            return self.stop.requested
        return self.stop.ends(self._is_chief_here)

    def meet_serving(self) -> None:
        """Checks that the tasks that serve belong to this run; waits while one does not answer.

        It is called for each new session, since one of them may have been replaced meanwhile. A
        chief claims them, always in the same order, so that of two chiefs one gets them all.

        Raises:
          ConfigError: one of these tasks belongs to another job or run.
          TrainingError: one of these tasks does not answer in time.
        """
        # The step is over in which a ps has ended. A worker waits for its chief's session, for
        # which there is a time limit of its own.
        self.activity.begin(START if self.cluster.is_master else None)
        self._handshake.claims = self.cluster.is_master
        self._peers.wait_for(self._serving)  # The watchdog handles signals meanwhile.
        limit = self._config.cluster_timeout
        for task in self._serving:
            began = time.monotonic()
            while not self._handshake.meet(task):
                time.sleep(_MEET_AGAIN_SECS)
                if (asked := time.monotonic()) - began > limit:
                    fault = f"has not said for {limit:g} s (--cluster-timeout) whom it serves"
                    raise TrainingError(f"{task} {fault}; start it again, and then this task")
                self._peers.wait_for(self._serving)
                began += time.monotonic() - asked  # That waiting has a limit of its own.

    def describe(self, images: int) -> str:
        """Describes the cluster and its kind of training in one line for people.

        Args:
          images: the number of images in a global step.
        """
        count, gradients = self.cluster.num_trainers, self._replication.replicas_to_aggregate
        how = "in-graph" if self._in_graph else "asynchronous"
        if gradients:
            how = f"synchronous, {gradients} of {count} gradients an update"
        ps = len(self.cluster.of(PS))
        tasks = f"{count} trainer{'s' * (count != 1)} and {ps} parameter server{'s' * (ps != 1)}"
        return f"{self.cluster.label} of {tasks}, {how}, {images} images a global step"

    def tell_end(self) -> None:
        """Tells the tasks that only serve that this chief no longer needs them.

        It keeps telling them until `close`, since a task may be started again meanwhile.
        """
        self._peers.stop()
        handshake.tell_end(self._serving, self._handshake.identity)
        threading.Thread(target=self._keep_telling, daemon=True, name="tell").start()

    def _keep_telling(self) -> None:
        while not self._closed.wait(_TELL_AGAIN_SECS):
            handshake.tell_end(self._serving, self._handshake.identity)

    def close(self) -> None:
        """Ends what this trainer asks and tells other tasks."""
        self._closed.set()
        self._peers.stop()


@contextlib.contextmanager
def of(
    params: ModelParams,
    cluster: Optional[Cluster],
    records: RecordSet,
    stop: StopRequest,
    trains: bool = True,
    check: Optional[Callable[[], None]] = None,
) -> Iterator[Guard]:
    """Watches this process for the time of a `with` statement.

    Args:
      params: settings and devices; in a cluster, with the replication of this trainer.
      cluster: the addresses of all tasks, and which task this process is; None: it works alone.
      records: the records of the data set.
      stop: knows whether a signal has arrived.
      trains: whether there is anything left to train; otherwise no other task is needed.
      check: function that raises an exception where waiting for other tasks is useless; None:
        `stop.check`.

    Yields:
      The guard, in a cluster once the tasks that this one needs have answered.

    Raises:
      ConfigError: the server's port is not available, or a task belongs to another job.
      TrainingError: a task does not answer in time.
    """
    check = check or stop.check
    with contextlib.ExitStack() as stack:
        if cluster is None:
            guarded = Guard(params.config, stop)
        else:
            guarded = in_cluster = ClusterGuard(params, cluster, records, stop)
            stack.callback(in_cluster.close)
            if trains:
                in_cluster.wait_for_tasks(check)
                stack.enter_context(watching(lambda: in_cluster.check(check)))
            # Without it, a worker looks for the chief's session every 30 s only: its first step
            # came 33 s after it was ready instead of 6 s (1 ps and 2 trainers on 2 cores, an MLP).
            often = tf_internals.look_often(cluster.own.target, in_cluster.meet_serving)
            stack.enter_context(often)
        # A worker waits for its chief's session, for which there is a time limit of its own.
        guarded.activity.begin(START if cluster is None or cluster.is_master else None)
        stack.enter_context(watching(guarded.activity))
        yield guarded
