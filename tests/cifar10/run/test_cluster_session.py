"""A trainer's place in its cluster: whom it needs, where its graph goes, how it says so."""

import contextlib
import dataclasses
import functools
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster import introduction, liveness, server, shutdown
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.identity import Identity, Owner
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError
from cifar10.host import activity
from cifar10.host.activity import Activity
from cifar10.host.signals import StopRequest
from cifar10.run import cluster_session
from cifar10.run.cluster_session import ClusterSession
from cifar10.run.process_guard import ProcessGuard
from cifar10.tf_internals import session_wait
from testbeds.ports import free_ports
from tests.cifar10.answering import answering
from tests.cifar10.steps import make_plan

CPU = "device:CPU:0"


class Job:
    """A master, two workers and two parameter servers, of which a test makes sessions."""

    def __init__(self, output_dir: str) -> None:
        self._sessions: list[ClusterSession] = []
        self.output_dir = output_dir
        ports = iter(free_ports(5))
        counts = {"master": 1, "worker": 2, "ps": 2}
        self.addresses = {
            job: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count))
            for job, count in counts.items()
        }

    def cluster(self, job: str, index: int = 0) -> Cluster:
        return Cluster(self.addresses, job, index, has_evaluator=False, source="TF_CONFIG")

    def session(self, job: str, index: int = 0, towers: int = 1, **settings: Any) -> ClusterSession:
        config = TrainConfig(train_batch_size=12, output_dir=self.output_dir, **settings)
        session = ClusterSession.start(config, self.cluster(job, index), make_plan(towers, 1))
        self._sessions.append(session)
        return session

    def end(self) -> None:
        for session in self._sessions:
            session._monitor.stop()
            session.close()

    @contextlib.contextmanager
    def answering(self, job: str) -> Iterator[None]:
        """Servers at the addresses of a job's tasks."""
        with contextlib.ExitStack() as stack:
            for address in self.addresses[job]:
                stack.enter_context(answering(port=int(address.split(":")[1])))
            yield


@pytest.fixture
def job(monkeypatch, tmp_path):
    """A session starts its server and looks often at the others; both is over with the test."""
    monkeypatch.setattr(session_wait.MODULE, "SessionManager", tf.train.SessionManager)
    monkeypatch.setattr(liveness, "_PERIOD_SECS", 0.05)
    # The test's servers answer, but say nothing of their job.
    monkeypatch.setattr(Acquaintance, "meet", lambda self, label: True)
    found = Job(str(tmp_path))
    yield found
    found.end()


def no_check() -> None:
    pass


class Guards:
    """What a session asks its watch to end the process for; a test's process cannot be ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[list[str], Any]] = []
        self.is_over: Any = None
        self.is_needed: Any = None

        def note(
            guard: ProcessGuard,
            labels: list[str],
            at_least: Any = None,
            is_over: Any = None,
            is_needed: Any = None,
        ) -> None:
            self.found.append((list(labels), at_least))
            self.is_over = is_over or self.is_over
            self.is_needed = is_needed

        monkeypatch.setattr(ProcessGuard, "end_without", note)


@pytest.fixture
def guards(monkeypatch):
    return Guards(monkeypatch)


def test_a_parameter_server_that_stays_away_is_named(job, guards):
    with pytest.raises(TrainingError) as missed:
        job.session("master", cluster_timeout=0.5).join(no_check)
    one, other = job.addresses["ps"]
    assert str(missed.value).startswith(f"ps/0 ({one}), ps/1 ({other}) have not answered")


def test_an_in_graph_master_needs_everybody_unless_it_saves_or_validates(job, guards):
    session = job.session("master", replication="in-graph", cluster_timeout=20.0)
    with job.answering("ps"), job.answering("worker"):
        session.join(no_check)
    assert guards.found == [(["ps/0", "ps/1"], None), (["worker/0", "worker/1"], None)]
    assert guards.is_needed()  # the beginning of a session, on all machines
    noted = Activity()
    session.watch_steps(noted)
    needed = {}
    for phase in (activity.START, activity.STEP, activity.SAVING, activity.EVALUATION):
        noted.begin(phase)
        needed[phase] = guards.is_needed()
    assert list(needed.values()) == [True, True, False, False]


@pytest.mark.parametrize(("aggregate", "workers"), [(None, 2), (2, 1), (1, 0)])
def test_a_synchronous_master_needs_as_many_workers_as_an_update_takes_gradients(
    job, guards, aggregate, workers
):
    session = job.session("master", replicas_to_aggregate=aggregate, cluster_timeout=20.0)
    with job.answering("ps"):
        session.join(no_check)
    session.watch_steps(Activity())
    assert guards.found == [
        (["ps/0", "ps/1"], None),
        (["worker/0", "worker/1"], workers),
    ]


def lose(session: ClusterSession, label: str, is_here: bool) -> None:
    """A task of a session, whose monitor does not run, has been silent for a long time."""
    task = session._monitor._tasks[label]
    task.seen, task.is_here = time.monotonic() - 1000.0, is_here


@pytest.mark.parametrize(
    ("settings", "gone", "hanging", "ends"),
    [
        ({}, [], ["worker/0"], True),
        ({}, ["worker/0"], [], False),
        ({"sync": False}, [], ["worker/0"], False),
        # An update takes two gradients of three, so a worker is to spare.
        ({"replicas_to_aggregate": 2}, [], ["worker/0"], False),
        ({"replicas_to_aggregate": 2}, ["worker/1"], ["worker/0"], True),
    ],
)
def test_after_a_signal_a_step_that_waits_in_vain_is_ended_and_a_save_is_not(
    job, monkeypatch, settings, gone, hanging, ends
):
    checks: list[Any] = []
    monkeypatch.setattr(ProcessGuard, "end_when", lambda _, check: checks.append(check))
    session, stop = job.session("master", **settings), StopRequest()
    phase = ["step"]
    session.heed_signals(stop, lambda: phase == ["step"])
    for label in (*gone, *hanging):
        lose(session, label, label in hanging)
    checks[0]()
    stop._note(15)
    with pytest.raises(Stopped) if ends else contextlib.nullcontext():
        checks[0]()
    phase[0] = "saving"
    checks[0]()
    lose(session, "ps/1", True)  # Without the weights, nothing can be saved.
    with pytest.raises(Stopped):
        checks[0]()


@pytest.mark.parametrize(
    ("settings", "lost", "hears"),
    [
        ({}, [], True),
        ({}, ["worker/1"], False),
        ({"replicas_to_aggregate": 2}, ["worker/1"], True),
        ({"sync": False}, ["worker/0", "worker/1"], True),
        ({"sync": False}, ["ps/0"], False),
    ],
)
def test_a_master_hears_all_whom_its_steps_need(job, settings, lost, hears):
    session = job.session("master", **settings)
    for label in lost:
        lose(session, label, False)
    assert session.hears_all is hears


def test_asynchronous_trainers_share_the_parameter_servers(job):
    place = job.session("worker", 1, towers=2, sync=False).replication()
    assert dataclasses.asdict(place) == {
        "variable_devices": (f"/job:ps/task:0/{CPU}", f"/job:ps/task:1/{CPU}"),
        "tower_devices": ("/job:worker/task:1/cpu:0", "/job:worker/task:1/cpu:1"),
        "task_device": "/job:worker/task:1",
        "num_machines": 1,
        "num_replicas": 3,
        "replica": 2,
        "replicas_to_aggregate": None,
        "transfer_dtype": tf.float32,
    }


def test_an_in_graph_master_has_towers_on_every_machine(job):
    for task, index in (("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)):
        server.start(job.cluster(task, index), tf.ConfigProto())
    place = job.session("master", towers=2, replication="in-graph").replication()
    machines = ("/job:master/task:0", "/job:worker/task:0", "/job:worker/task:1")
    assert place.tower_devices == tuple(f"{one}/{CPU}" for one in machines for _ in range(2))
    assert (place.num_machines, place.num_replicas, place.replicas_to_aggregate) == (3, 1, None)


@pytest.mark.parametrize(
    ("settings", "how", "images"),
    [
        ({"sync": False}, "asynchronous", 12),
        ({"replicas_to_aggregate": 2}, "synchronous, 2 of 3 gradients an update", 24),
    ],
)
def test_a_session_says_what_it_is_and_how_it_trains(job, settings, how, images):
    session = job.session("worker", 1, **settings)
    place = session.replication()
    assert session.describe(place) == (
        f"worker/1 of 3 trainers and 2 parameter servers, {how}, {images} images a global step"
    )
    assert session.as_dict(place) == {
        "task": "worker/1",
        "tasks": {job: list(tasks) for job, tasks in job.addresses.items()},
        "replication": "between-graph",
        "gradients_an_update": place.replicas_to_aggregate,
        "images_a_global_step": images,
    }


def test_the_masters_estimator_knows_no_cluster_and_a_workers_knows_its_task(job):
    session = job.session("master", cluster_timeout=20.0)
    master = session.run_config(model_dir="/nowhere")
    assert (master.master, master.is_chief, master.task_type) == (session.target, True, "worker")
    assert master.cluster_spec.as_dict() == {}
    assert master.model_dir == "/nowhere"
    filters = list(master.session_config.device_filters)
    assert filters == ["/job:ps", "/job:master/task:0"]
    worker = job.session("worker", 1).run_config()
    assert (worker.is_chief, worker.task_type, worker.task_id) == (False, "worker", 1)
    assert worker.cluster_spec.as_dict() == {job: list(v) for job, v in job.addresses.items()}
    assert list(worker.session_config.device_filters) == ["/job:ps", "/job:worker/task:1"]


@pytest.mark.parametrize(
    ("replication", "told"),
    [("between-graph", ["ps/0", "ps/1"]), ("in-graph", ["ps/0", "ps/1", "worker/0", "worker/1"])],
)
def test_a_trainer_tells_each_task_that_only_serves_of_its_end_once(job, replication, told):
    tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    targets = {task: server.start(job.cluster(*task), tf.ConfigProto()).target for task in tasks}
    session = job.session("master", replication=replication)
    session.tell_end()
    session.tell_end()
    session.close()
    heard = {}
    for task, target in targets.items():
        config = server.with_filters(tf.ConfigProto(), [f"/job:{task[0]}/task:{task[1]}"])
        with tf.Graph().as_default(), tf.Session(target, config=config) as session:
            queue = shutdown._queue(*task)
            texts = session.run(queue.dequeue_many(queue.size())).tolist()
            labels = [Identity.from_text(text.decode()).role for text in texts]
        heard[f"{task[0]}/{task[1]}"] = labels
    assert heard == {one: ["master/0"] if one in told else [] for one in heard}


def test_a_session_with_nothing_left_to_train_waits_for_nobody(job):
    config = TrainConfig(
        train_batch_size=12,
        replication="in-graph",
        cluster_timeout=300.0,
        output_dir=job.output_dir,
    )
    plan = make_plan(1, 1)
    session = ClusterSession.start(config, job.cluster("master"), plan, trains=False)
    session.join(lambda: pytest.fail("it waits"))
    place = session.replication()
    assert len(place.tower_devices) == 1
    assert place.examples_per_step(12) == 3 * 12


@pytest.mark.parametrize(
    ("task", "settings", "labels"),
    [
        ("master", {}, ["ps/0", "ps/1", "worker/0", "worker/1"]),
        ("worker", {}, ["master/0", "ps/0", "ps/1"]),
    ],
)
def test_a_session_asks_the_tasks_that_it_needs_who_they_are(job, task, settings, labels):
    assert sorted(job.session(task, **settings)._acquaintance._labels) == labels


def test_each_new_session_meets_the_tasks_that_serve_until_all_answer(job, monkeypatch):
    monkeypatch.setattr(cluster_session, "_MEET_AGAIN_SECS", 0.01)
    met: list[str] = []
    job.session("master").session_begins = functools.partial(met.append, "begins")

    def meet(_: Acquaintance, label: str) -> bool:
        met.append(label)
        return met != ["begins", "ps/0"]

    monkeypatch.setattr(Acquaintance, "meet", meet)
    monkeypatch.setattr(LivenessMonitor, "wait_for", lambda *_: None)
    session_wait.MODULE.SessionManager.keywords["check"]()
    assert met == ["begins", "ps/0", "ps/0", "ps/1"]


def test_a_master_that_one_ps_refuses_has_claimed_no_other(job, monkeypatch):
    monkeypatch.undo()  # These servers say who they are.
    monkeypatch.setattr(session_wait.MODULE, "SessionManager", tf.train.SessionManager)
    targets = []
    for index in range(2):
        task = job.cluster("ps", index)
        targets.append(server.start(task, tf.ConfigProto()).target)
        introduction.introduce(targets[index], Identity.of(task))
    first = introduction.Conversation(targets[0])
    first.claim(Owner("0" * 64, "there:/other"))
    first.close()
    session = job.session("master", cluster_timeout=60.0)
    session._monitor.start()
    session._monitor.wait_for(["ps/1"], no_check, lambda _: None)
    with pytest.raises(ConfigError, match="^ps/0 .* serves another run: that of there:/other, "):
        session.meet_serving()
    assert introduction.own_owner(targets[1]) is None


def test_a_master_with_its_output_folder_remains_the_owner(job, tmp_path_factory):
    first, again = (job.session(task)._acquaintance.identity for task in ("master", "worker"))
    assert again.owner is None
    assert first.owner is not None
    assert first.owner.place == f"{socket.gethostname()}:{job.output_dir}"
    config = TrainConfig(output_dir=job.output_dir)
    assert cluster_session._owner(config, job.cluster("master")) == first.owner
    other = TrainConfig(output_dir=str(tmp_path_factory.mktemp("other")))
    other_owner = cluster_session._owner(other, job.cluster("master"))
    assert other_owner.digest != first.owner.digest
