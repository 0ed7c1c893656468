"""A trainer in a cluster: what it must agree on, its place, its server, and whom it needs."""

import contextlib
import dataclasses
import hashlib
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
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, UserError
from cifar10.host.activity import EVALUATION, SAVING, START
from cifar10.host.process import Stay, StopRequest, say
from cifar10.input.records import RecordSet
from cifar10.output import run_file
from cifar10.run.watchdog import Watchdog
from cifar10.schema import TRAIN
from cifar10.settings import flag_name, flag_of
from cifar10.step.devices import DevicePlan, plan_devices, use_devices
from cifar10.step.params import Replication
from cifar10_program import VERSION

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
    code = b"".join(str(one.relative_to(root)).encode() + one.read_bytes() for one in paths)
    parts = records.fingerprints().get(TRAIN, [])
    return {
        "the program": f"version {VERSION}, {_digest(code)}",
        **settings,
        "the training records": _digest("\n".join(parts).encode()),
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]


def replicas_to_aggregate(config: TrainConfig, cluster: Cluster) -> Optional[int]:
    """Returns how many replicas' gradients an update waits for; None: it waits for no other.

    It is None in asynchronous and in-graph training, and for a single trainer.
    """
    if not config.sync or config.replication == "in-graph" or cluster.num_trainers == 1:
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
    device, in_graph = cluster.own.device, config.replication == "in-graph"
    towers = tuple(f"{device}{one}" for one in plan.tower_devices)
    if in_graph and target is not None:
        with tf.Session(target, config=server.with_filters(plan.session_config, [])) as session:
            names = [one.name for one in session.list_devices()]
        towers = tuple(
            tower
            for task in cluster.trainers
            for tower in _towers_of(task, names, plan.num_towers, config.num_towers)
        )
    return Replication(
        variable_devices=tuple(one.cpu for one in cluster.of(PS) or [cluster.master]),
        tower_devices=towers,
        task_device=device,
        num_machines=cluster.num_trainers if in_graph else 1,
        num_replicas=1 if in_graph else cluster.num_trainers,
        replica=cluster.trainers.index(cluster.own),
        replicas_to_aggregate=replicas_to_aggregate(config, cluster),
        transfer_dtype=tf.bfloat16 if config.ps_transfer == "bf16" else tf.float32,
    )


def _towers_of(
    task: Task, devices: list[str], on_cpu: int, num_towers: Optional[int]
) -> tuple[str, ...]:
    """Returns the devices of a machine's towers: `num_towers`, by default one per GPU.

    A machine without GPUs has `on_cpu` towers, as many as the master's.
    """
    own = f"/job:{task.job}/replica:0/task:{task.index}/"
    gpus = [name for name in devices if name.startswith(own) and ":GPU:" in name]
    if not gpus:
        return (task.cpu,) * on_cpu
    count = num_towers or len(gpus)
    if count % len(gpus):
        raise ConfigError(
            f"--num-towers must be a multiple of the GPUs, got {count} towers on the "
            f"{len(gpus)} GPUs of {task.label}; --num-gpus says there how many to use"
        )
    return tuple(gpus[number % len(gpus)] for number in range(count))


class ClusterSession:
    """A trainer of a cluster: chooses its devices, and starts its server.

    Args:
      config: the settings.
      cluster: the addresses of all tasks, and which task this process is.
      records: the records of the data set.
      trains: whether there is anything left to train; otherwise no other task is needed.

    Attributes:
      cluster: the argument `cluster`.
      plan: this machine's devices.
      watchdog: ends this process without the tasks that it needs.
      place: this trainer's place among the others, once `join` has returned.

    Raises:
      ConfigError: the machine does not fit the settings, or the server's port is not available.
    """

    place: Replication

    def __init__(
        self,
        config: TrainConfig,
        cluster: Cluster,
        records: RecordSet,
        trains: bool = True,
    ) -> None:
        self._config, self.cluster, self._trains = config, cluster, trains
        self.plan = plan_devices(config, cluster.host_share)
        use_devices(self.plan.session_config, self.plan.gpus)
        self.watchdog = Watchdog()
        self._watched = contextlib.ExitStack()
        self._in_graph = config.replication == "in-graph"
        # How many gradients of workers each update of this master waits for; 0: it waits for none.
        least = replicas_to_aggregate(config, cluster) or 1
        self._least_workers = least - 1 if cluster.is_master else 0
        others = [one for one in cluster.tasks if one != cluster.own]
        self._workers = cluster.of(WORKER)
        self._always = [one for one in others if one in (*cluster.of(PS), cluster.master)]
        self._serving = [*cluster.of(PS), *(self._workers if self._in_graph else [])]
        asked = others if cluster.is_master else self._always
        own = Identity.of(cluster, *_run(config.output_place, cluster), terms(config, records))
        self._target = server.start(cluster, self.plan.session_config, own)
        self._acquaintance = Acquaintance(cluster, asked, self._serving, own)
        self._peers = Peers(others, config.cluster_timeout, self._acquaintance.meet)
        self._closed, self._is_told = threading.Event(), False
        tf_internals.look_often(self._target, self.meet_serving)

    def join(self, check: Callable[[], None]) -> None:
        """Waits for the tasks without which no session can start, and watches them afterwards.

        If there is nothing left to train, it waits for nobody.

        Args:
          check: a function that is called repeatedly; it raises an exception to end the waiting.

        Raises:
          ConfigError: one of these tasks belongs to another job.
          TrainingError: one of these tasks does not answer in time.
        """
        try:
            if self._trains:
                self._peers.start()
                needed = [one for tasks, _ in self._needs() for one in tasks]
                self._peers.wait_for(needed, check, say)
            target = self._target if self._trains else None
            self.place = replication(self._config, self.cluster, self.plan, target)
        except BaseException:
            self.close()
            raise
        if self._trains:
            self._watch(lambda: self._check_peers(check))

    def _watch(self, check: Callable[[], None]) -> None:
        self._watched.enter_context(self.watchdog.watching(check))

    def _needs(self) -> list[tuple[list[Task], int]]:
        """Returns whom this trainer needs at the moment: of each list at least so many."""
        if not self._trains or self._is_told:
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
                with contextlib.suppress(Stopped, UserError, OSError, tf.errors.OpError):
                    check()
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
        began, limit = None, self._config.cluster_timeout
        while True:
            self._peers.wait_for(self._serving)  # The watchdog handles signals meanwhile.
            late = next((one for one in self._serving if not self._acquaintance.meet(one)), None)
            if late is None:
                return
            began = began or time.monotonic()
            if time.monotonic() - began > limit:
                raise TrainingError(
                    f"{late} has not said for {limit:g} s whom it serves (--cluster-timeout); "
                    "start it again, and then this task"
                )
            time.sleep(_MEET_AGAIN_SECS)

    def stay_for_the_master(self, stop: StopRequest) -> Stay:
        """Returns how long this trainer keeps training for the master after a signal.

        The process is ended after that time.
        """
        stay = Stay(stop, lambda: self._peers.is_here(self.cluster.master))
        self._watch(stay.check)
        return stay

    def heed_signals(self, stop: StopRequest) -> None:
        """Ends this master after a signal if a task that it needs hangs or is gone.

        Otherwise the master ends its step and saves, however long that takes. To save, it needs the
        parameter servers, but no worker. If workers have only gone, they do not count: after a
        signal, they leave in good order.
        """

        def check() -> None:
            for tasks, at_least in self._needs() if stop.requested else ():
                silent = self._peers.silent(tasks)
                leave = tasks is self._workers and not self._in_graph
                in_vain = not leave or any(map(self._peers.is_here, silent))
                if len(tasks) - len(silent) < at_least and in_vain:
                    stop.check()

        self._watch(check)

    def run_config(self, **settings: Any) -> Any:
        """Returns a tf.estimator.RunConfig for training as this task.

        The master's RunConfig contains no cluster, only the target of its sessions. So Estimator
        evaluates in this process after each checkpoint, whatever the platform calls the master.

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
        count, servers = self.cluster.num_trainers, len(self.cluster.of(PS))
        gradients = self.place.replicas_to_aggregate
        how = "in-graph" if self._in_graph else "asynchronous"
        if gradients:
            how = f"synchronous, {gradients} of {count} gradients an update"
        return (
            f"{self.cluster.label} of {count} trainer{'s' * (count != 1)} and {servers} parameter "
            f"server{'s' * (servers != 1)}, {how}, {images} images a global step"
        )

    def as_dict(self, images: int) -> dict[str, Any]:
        """Returns the entry of result.json that describes the cluster; see `describe`."""
        return {
            "task": self.cluster.label,
            "tasks": {job: list(tasks) for job, tasks in self.cluster.platform_jobs.items()},
            "replication": self._config.replication,
            "gradients_an_update": self.place.replicas_to_aggregate,
            "images_a_global_step": images,
        }

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


def _run(output_place: str, cluster: Cluster) -> tuple[str, str]:
    """Returns key and place of this master's run; both are empty in a worker, which learns them."""
    if not cluster.is_master:
        return "", ""
    key = cluster.token or digest(run_file.read_or_make_owner(output_place))
    return key, run_file.place(output_place)
