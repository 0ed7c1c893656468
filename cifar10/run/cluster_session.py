"""A trainer in a cluster: what it must agree on, its place, its server, and whom it needs."""

import contextlib
import dataclasses
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10 import tf_internals
from cifar10.cluster import server
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.peers import Peers
from cifar10.cluster.server import Identity
from cifar10.cluster.spec import PS, WORKER, Cluster, Task, digest
from cifar10.config.settings import flag_name, flag_of
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, TrainingError, UserError
from cifar10.host.activity import EVALUATION, SAVING, START
from cifar10.host.process import Stay, StopRequest, say
from cifar10.input.records import RecordSet
from cifar10.output import run_file
from cifar10.run.watchdog import Watchdog
from cifar10.step.devices import DevicePlan, plan_devices, use_devices
from cifar10.step.params import Replication
from cifar10_program import VERSION
from cifar10_program.streams import complain

_OF_TRAINERS = ("sync", "replicas_to_aggregate", "replication", "ps_transfer")
_DIGEST_CHARS = 8
_TELL_AGAIN_SECS = 2.0
_MEET_AGAIN_SECS = 0.2
# The least time that a worker waits for a session of a master that answers. The master may be
# building its graph, and --cluster-timeout is for tasks that do not answer.
_LEAST_SESSION_SECS = 60


def terms(config: TrainConfig, records: RecordSet) -> dict[str, str]:
    """Returns what decides the steps of all trainers: settings by flag, the code, the records."""
    settings = {
        flag_name(field.name): str(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if flag_of(field).group in ("model", "training") or field.name in _OF_TRAINERS
        if field.name != "test_time_augmentation"
    }
    root = Path(__file__).parents[1]
    paths = sorted(root.rglob("*.py"))
    code = "".join(f"{one.relative_to(root)}{one.read_text('utf-8')}" for one in paths)
    return {
        "the program": f"version {VERSION}, {digest(code)[:_DIGEST_CHARS]}",
        **settings,
        "the training records": digest("\n".join(records.fingerprint()))[:_DIGEST_CHARS],
    }


def replicas_to_aggregate(config: TrainConfig, cluster: Cluster) -> Optional[int]:
    """Returns how many replicas' gradients an update waits for; None: it waits for no other.

    It is None in asynchronous and in-graph training, and for a single trainer.
    """
    if not config.sync or config.replication == "in-graph" or cluster.num_trainers == 1:
        return None
    return config.replicas_to_aggregate or cluster.num_trainers


def replication(config: TrainConfig, cluster: Cluster, plan: DevicePlan) -> Replication:
    """Returns a trainer's place among the others, of which `plan` has this machine's devices.

    In-graph, every machine has as many towers as the master's, on the same kind of device.
    """
    in_graph = config.replication == "in-graph"
    machines = cluster.trainers if in_graph else [cluster.own]
    return Replication(
        variable_devices=tuple(one.cpu for one in cluster.of(PS) or [cluster.master]),
        tower_devices=tuple(
            f"{one.device}{tower}" for one in machines for tower in plan.tower_devices
        ),
        task_device=cluster.own.device,
        num_machines=len(machines),
        num_replicas=1 if in_graph else cluster.num_trainers,
        replica=cluster.trainers.index(cluster.own),
        replicas_to_aggregate=replicas_to_aggregate(config, cluster),
        transfer_dtype=tf.bfloat16 if config.ps_transfer == "bf16" else tf.float32,
    )


class ClusterSession:
    """A trainer of a cluster: chooses its devices, and starts its server.

    Args:
      config: the settings.
      cluster: the addresses of all tasks, and which task this process is.
      records: the records of the data set.
      stop: knows whether a signal has arrived.
      trains: whether there is anything left to train; otherwise no other task is needed.

    Attributes:
      cluster: the argument `cluster`.
      plan: this machine's devices.
      place: this trainer's place among the others.
      stay: how long a worker keeps training for its master after a signal.
      watchdog: ends this process without the tasks that it needs.

    Raises:
      ConfigError: the machine does not fit the settings, or the server's port is not available.
    """

    def __init__(
        self,
        config: TrainConfig,
        cluster: Cluster,
        records: RecordSet,
        stop: StopRequest,
        trains: bool = True,
    ) -> None:
        self._config, self.cluster, self._stop = config, cluster, stop
        self.plan = plan_devices(config, cluster.host_share)
        use_devices(self.plan.session_config, self.plan.gpus)
        self.place = replication(config, cluster, self.plan)
        self.watchdog, self._watched = Watchdog(), contextlib.ExitStack()
        self._in_graph = config.replication == "in-graph"
        others = [one for one in cluster.tasks if one != cluster.own]
        self._always = [one for one in others if one.job != WORKER]
        self._workers = cluster.of(WORKER)
        self._serving = [*cluster.of(PS), *(self._workers if self._in_graph else [])]
        run = place = ""  # A worker learns them from its master.
        if cluster.is_master:
            run = cluster.token or digest(run_file.read_or_make_owner(config.output_place))
            place = run_file.place(config.output_place)
        own = Identity.of(cluster, run, place, terms(config, records))
        self._target = server.start(cluster, self.plan.session_config, own)
        asked = others if cluster.is_master else self._always
        self._acquaintance = Acquaintance(cluster, asked, self._serving, own)
        self._peers = Peers(others, config.cluster_timeout, self._acquaintance.meet)
        self.stay = Stay(stop, lambda: self._peers.is_here(cluster.master))
        if not trains:
            self._peers.stop()
        self._closed = threading.Event()
        tf_internals.look_often(self._target, self.meet_serving)

    def join(self, check: Callable[[], None]) -> None:
        """Waits for the tasks without which no session can start, and watches them afterwards.

        Args:
          check: a function that is called repeatedly; it raises an exception to end the waiting.

        Raises:
          ConfigError: one of these tasks belongs to another job.
          TrainingError: one of these tasks does not answer in time.
        """
        self._peers.start()
        self._peers.wait_for([one for tasks, _ in self._needs() for one in tasks], check, say)
        self._watched.enter_context(self.watchdog.watching(lambda: self._check(check)))

    def _needs(self) -> list[tuple[list[Task], int]]:
        """Returns whom this trainer needs at the moment: of each list at least so many."""
        needs, activity = [(self._always, len(self._always))], self.watchdog.activity
        # A master that saves or validates does not need the workers, and its checkpoint must become
        # whole. In-graph, all machines take part in its steps, and as its sessions begin.
        if self._in_graph and activity.phase not in (SAVING, EVALUATION):
            needs.append((self._workers, len(self._workers)))
        elif self.cluster.is_master and activity.is_in_step:
            least = (self.place.replicas_to_aggregate or 1) - 1
            needs += [(self._workers, least)] if least else []
        return needs

    def _check(self, check: Callable[[], None]) -> None:
        """Raises what ends this trainer if too few of the tasks that it needs are there.

        Whether training is over, `check` knows; the main thread handles signals itself, and a file
        that cannot be read at the moment says nothing. After a signal, a master ends its step and
        saves, however long that takes, unless a task that it needs hangs or is gone; workers that
        have only gone do not count, except in-graph: they leave in good order.
        """
        for tasks, at_least in self._needs():
            for line in self._peers.news(tasks):  # By itself, since a terminal may block.
                threading.Thread(target=complain, args=(line,), daemon=True, name="news").start()
            if self._peers.silent(tasks, 0.0):
                with contextlib.suppress(Stopped, UserError, OSError, tf.errors.OpError):
                    check()
            lost = self._peers.silent(tasks)
            if tasks is self._workers and not self._in_graph:
                lost = [one for one in lost if self._peers.is_here(one)]
            if self.cluster.is_master and len(tasks) - len(lost) < at_least:
                self._stop.check()
            self._peers.require(tasks, at_least)
        if not self.cluster.is_master:
            self.stay.check()

    def hears_all(self) -> bool:
        """Returns whether the tasks answer that this trainer needs at the moment."""
        silent = self._peers.silent
        return all(len(one) - len(silent(one)) >= least for one, least in self._needs())

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
        self._peers.wait_for(self._serving)  # The watchdog handles signals meanwhile.
        limit = self._config.cluster_timeout
        for task in self._serving:
            began = time.monotonic()
            while not self._acquaintance.meet(task):
                time.sleep(_MEET_AGAIN_SECS)
                if (asked := time.monotonic()) - began > limit:
                    raise TrainingError(
                        f"{task} has not said for {limit:g} s (--cluster-timeout) whom it serves; "
                        "start it again, and then this task"
                    )
                self._peers.wait_for(self._serving)
                began += time.monotonic() - asked  # That waiting has a limit of its own.

    def run_config(self, **settings: Any) -> Any:
        """Returns a tf.estimator.RunConfig for training as this task.

        The master's RunConfig contains no cluster, only the target of its sessions: so it is
        Estimator's chief, whatever the platform calls it.

        Args:
          **settings: further arguments of RunConfig.
        """
        cluster, timeout_secs = self.cluster, int(self._config.cluster_timeout) + 1
        tf_config: dict[str, Any] = {"session_master": self._target}
        if not cluster.is_master:
            tf_config["cluster"] = {job: list(tasks) for job, tasks in cluster.jobs.items()}
            tf_config["task"] = {"type": cluster.task_type, "index": cluster.task_index}
        # Its sessions see only the tasks they need: they would wait for all that they see.
        seen = [] if self._in_graph else [f"/job:{PS}", cluster.own.device]
        os.environ["TF_CONFIG"] = json.dumps(tf_config)  # `cifar10.main` has removed the user's.
        try:
            return tf.estimator.RunConfig(
                session_config=server.with_filters(self.plan.session_config, seen),
                # It places plain variables on the first parameter server.
                device_fn=tf.train.replica_device_setter(
                    ps_tasks=len(cluster.of(PS)),
                    worker_device=cluster.own.device,
                    ps_strategy=lambda op: 0,
                ),
                session_creation_timeout_secs=max(_LEAST_SESSION_SECS, timeout_secs),
                **settings,
            )
        finally:
            del os.environ["TF_CONFIG"]

    def describe(self, images: int) -> str:
        """Describes the cluster and its kind of training in one line for people.

        Args:
          images: the number of images in a global step.
        """
        count, gradients = self.cluster.num_trainers, self.place.replicas_to_aggregate
        how = "in-graph" if self._in_graph else "asynchronous"
        if gradients:
            how = f"synchronous, {gradients} of {count} gradients an update"
        ps = len(self.cluster.of(PS))
        tasks = f"{count} trainer{'s' * (count != 1)} and {ps} parameter server{'s' * (ps != 1)}"
        return f"{self.cluster.label} of {tasks}, {how}, {images} images a global step"

    def tell_end(self) -> None:
        """Tells the tasks that only serve that this master no longer needs them.

        It keeps telling them until `close`, since a task may be started again meanwhile.
        """
        self._peers.stop()
        server.tell_end(self._serving, self._acquaintance.identity)
        threading.Thread(target=self._keep_telling, daemon=True, name="tell").start()

    def _keep_telling(self) -> None:
        while not self._closed.wait(_TELL_AGAIN_SECS):
            server.tell_end(self._serving, self._acquaintance.identity)

    def close(self) -> None:
        """Ends what this trainer asks and tells other tasks."""
        self._closed.set()
        self._peers.stop()
        self._watched.close()
