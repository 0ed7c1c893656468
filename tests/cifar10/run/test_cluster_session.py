"""A trainer in its cluster: what all agree on, its place, whom it needs, and what ends it."""

import contextlib
import dataclasses
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10 import tf_internals
from cifar10.cluster import peers, server
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.peers import Peers
from cifar10.cluster.server import Board, Identity
from cifar10.cluster.spec import Cluster, Task, digest
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, TrainingOver
from cifar10.host import activity
from cifar10.host.process import StopRequest
from cifar10.input.records import open_records
from cifar10.output import run_file
from cifar10.run import cluster_session
from cifar10.run.cluster_session import ClusterSession, terms
from cifar10.run.watchdog import Watchdog
from cifar10.step.params import Replication
from testbeds.ports import free_ports
from tests.cifar10 import record_files
from tests.cifar10.steps import make_plan


class Job:
    """A master, two workers and two parameter servers, of which a test makes sessions."""

    def __init__(self, output_dir: str, data_dir: str) -> None:
        self._sessions: list[ClusterSession] = []
        self.stop = StopRequest()
        self.output_dir, self.records = output_dir, open_records(data_dir)
        ports = iter(free_ports(5))
        counts = {"master": 1, "worker": 2, "ps": 2}
        self.addresses = {
            job: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count))
            for job, count in counts.items()
        }

    def cluster(self, job: str, index: int = 0) -> Cluster:
        return Cluster(self.addresses, job, index, has_evaluator=False, source="TF_CONFIG")

    def session(
        self, job: str, index: int = 0, trains: bool = True, **settings: Any
    ) -> ClusterSession:
        config = TrainConfig(
            model="mlp", train_batch_size=12, num_towers=1, output_dir=self.output_dir, **settings
        )
        cluster = self.cluster(job, index)
        session = ClusterSession(config, cluster, self.records, self.stop, trains)
        self._sessions.append(session)
        return session

    def end(self) -> None:
        for session in self._sessions:
            session.close()


@pytest.fixture
def job(monkeypatch, tmp_path, tutorial_data):
    """A session starts its server and looks often at the others; both is over with the test."""
    monkeypatch.setattr(tf_internals.SESSIONS, "SessionManager", tf.train.SessionManager)
    monkeypatch.setattr(peers, "_PERIOD_SECS", 0.05)
    # The pools of the tests' own process have their sizes already.
    monkeypatch.setattr(cluster_session, "use_devices", lambda *devices: None)
    # The test's servers answer, but say nothing of their job.
    monkeypatch.setattr(Acquaintance, "meet", lambda self, task: True)
    found = Job(str(tmp_path), str(tutorial_data))
    yield found
    found.end()


def no_check() -> None:
    pass


def needs(session: ClusterSession) -> list[tuple[list[str], int]]:
    return [([one.label for one in tasks], at_least) for tasks, at_least in session._needs()]


def labelled(session: ClusterSession, *labels: str) -> list[Task]:
    return [one for one in session.cluster.tasks if one.label in labels]


@pytest.fixture
def checks(monkeypatch) -> list[Callable[[], None]]:
    """What a session's watchdog checks; a test's process cannot be ended."""
    found: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def watching(dog: Watchdog, check: Callable[[], None]) -> Iterator[None]:
        found.append(check)
        yield

    monkeypatch.setattr(Watchdog, "watching", watching)
    return found


SERVERS, WORKERS = (["ps/0", "ps/1"], 2), (["worker/0", "worker/1"], 2)
ONE_WORKER = (["worker/0", "worker/1"], 1)


@pytest.mark.parametrize(
    ("settings", "in_step", "saving"),
    [
        ({"replication": "in-graph"}, [SERVERS, WORKERS], [SERVERS]),
        ({}, [SERVERS, WORKERS], [SERVERS]),
        ({"replicas_to_aggregate": 2}, [SERVERS, ONE_WORKER], [SERVERS]),
        ({"replicas_to_aggregate": 1}, [SERVERS], [SERVERS]),
        ({"sync": False}, [SERVERS], [SERVERS]),
    ],
    ids=str,
)
def test_a_master_needs_its_servers_and_in_a_step_the_workers_that_it_waits_for(
    job, settings, in_step, saving
):
    session = job.session("master", **settings)
    # The beginning of an in-graph session is on all machines.
    at_first = in_step if "replication" in settings else saving
    assert needs(session) == at_first
    for phase, expected in (
        (activity.START, at_first),
        (activity.STEP, in_step),
        (activity.SAVING, saving),
        (activity.EVALUATION, saving),
    ):
        session.watchdog.activity.begin(phase)
        assert needs(session) == expected, phase


def test_a_worker_needs_the_master_and_the_servers(job):
    assert needs(job.session("worker")) == [(["master/0", "ps/0", "ps/1"], 3)]


def lose(session: ClusterSession, *labels: str) -> None:
    """Tasks of a session, whose threads do not ask, have been silent for a long time."""
    for task in labelled(session, *labels):
        session._peers._states[task].seen = time.monotonic() - 1000.0


def joined(session: ClusterSession, check: Callable[[], None] = no_check) -> None:
    """Joins without tasks that answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peers, "start", lambda self: None)
        patch.setattr(Peers, "wait_for", lambda *_: None)
        session.join(check)


def test_a_trainer_whose_task_is_lost_ends_unless_training_is_over(job, checks, capsys):
    over = [False]

    def check() -> None:
        if over[0]:
            raise TrainingOver(7)
        raise Stopped(15)  # The main thread handles signals itself.

    session = job.session("worker")
    joined(session, check)
    (look,) = checks
    look()
    lose(session, "worker/1")
    look()
    assert session.hears_all()
    lose(session, "ps/0")
    assert not session.hears_all()
    with pytest.raises(TrainingError, match="^ps/0 "):
        look()
    for thread in threading.enumerate():
        if thread.name == "news":
            thread.join()
    assert capsys.readouterr().err.startswith("ps/0 (")
    over[0] = True
    with pytest.raises(TrainingOver):
        look()
    session.tell_end()  # From now on, it needs nobody.
    look()


def test_after_a_signal_a_step_that_waits_in_vain_is_ended_and_a_save_is_not(job, checks):
    session = job.session("master", cluster_timeout=1e6)
    joined(session)
    (look,) = checks
    session.watchdog.activity.begin(activity.STEP)
    lose(session, "worker/0")
    look()
    job.stop._note(15)
    look()  # The worker has left in good order.
    (worker,) = labelled(session, "worker/0")
    session._peers._states[worker].is_here = True
    with pytest.raises(Stopped):
        look()
    session.watchdog.activity.begin(activity.SAVING)
    look()
    lose(session, "ps/1")  # Without the weights, nothing can be saved.
    with pytest.raises(Stopped):
        look()


def test_after_a_signal_a_worker_ends_once_its_master_has_gone(job, checks):
    session = job.session("worker", cluster_timeout=1e6)
    joined(session)
    (look,) = checks
    (master,) = labelled(session, "master/0")
    session._peers._states[master].is_here = True
    job.stop._note(15)
    look()
    session._peers._states[master].is_here = False
    with pytest.raises(Stopped):
        look()


@pytest.mark.parametrize(
    ("replication", "told"),
    [("between-graph", ["ps/0", "ps/1"]), ("in-graph", ["ps/0", "ps/1", "worker/0", "worker/1"])],
)
def test_a_master_tells_each_task_that_only_serves_of_its_end(job, replication, told):
    tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    targets = {task: server.start(job.cluster(*task), tf.ConfigProto()) for task in tasks}
    session = job.session("master", replication=replication)
    session.tell_end()
    session.close()
    heard = []
    for (name, index), target in targets.items():
        with contextlib.closing(Board(target)) as board:
            heard += [f"{name}/{index}"] * board.has_ended()
    assert heard == told


def test_with_nothing_left_to_train_no_task_counts_as_silent(job):
    session = job.session("master", trains=False, replication="in-graph", cluster_timeout=300.0)
    lose(session, "ps/0", "worker/0")
    assert session.hears_all()


@pytest.mark.parametrize(
    ("task", "index", "phase"), [("master", 0, activity.START), ("worker", 1, None)]
)
def test_each_new_session_meets_the_tasks_that_serve_until_all_answer(
    job, monkeypatch, task, index, phase
):
    monkeypatch.setattr(cluster_session, "_MEET_AGAIN_SECS", 0.01)
    met: list[str] = []
    session = job.session(task, index)
    noted = session.watchdog.activity
    noted.begin(activity.STEP)

    def meet(_: Acquaintance, task: Task) -> bool:
        met.append(task.label)
        return met != ["ps/0"]

    monkeypatch.setattr(Acquaintance, "meet", meet)
    monkeypatch.setattr(Peers, "wait_for", lambda *_: None)
    tf_internals.SESSIONS.SessionManager.keywords["check"]()
    assert met == ["ps/0", "ps/0", "ps/1"]
    assert noted.phase == phase  # The step of the session before is over.


def test_a_ps_that_never_says_whom_it_serves_ends_a_new_session(job, monkeypatch):
    monkeypatch.setattr(cluster_session, "_MEET_AGAIN_SECS", 0.01)
    monkeypatch.setattr(Acquaintance, "meet", lambda *_: False)
    monkeypatch.setattr(Peers, "wait_for", lambda *_: None)
    session = job.session("worker", cluster_timeout=0.1)
    with pytest.raises(
        TrainingError, match=r"^ps/0 .* has not said for 0\.1 s .* whom it serves; "
    ):
        session.meet_serving()


def test_a_master_that_one_ps_refuses_has_claimed_no_other(job, monkeypatch):
    monkeypatch.undo()  # These servers say who they are.
    monkeypatch.setattr(tf_internals.SESSIONS, "SessionManager", tf.train.SessionManager)
    monkeypatch.setattr(cluster_session, "use_devices", lambda *devices: None)
    targets = [server.start(job.cluster("ps", index), tf.ConfigProto()) for index in range(2)]
    other = Identity.of(job.cluster("master"), "0" * 64, "there:/other")
    with contextlib.closing(Board(targets[0])) as first:
        first.claim(other)
    session = job.session("master", cluster_timeout=60.0)
    session._peers.start()
    session._peers.wait_for(labelled(session, "ps/1"))
    with pytest.raises(ConfigError, match="^ps/0 .* serves another run, that of there:/other, "):
        session.meet_serving()
    with contextlib.closing(Board(targets[1])) as second:
        assert second.master() is None


def test_a_master_is_known_by_the_owner_of_its_output_folder_and_a_worker_learns_it(job):
    first, other = (job.session(task)._acquaintance.identity for task in ("master", "worker"))
    assert (other.run, other.place) == ("", "")
    assert first.place == f"{socket.gethostname()}:{job.output_dir}"
    assert first.run == digest(run_file.read_or_make_owner(job.output_dir))


# What trainers agree on, and their places.

CPU = "device:CPU:0"
JOBS = {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1", "e:1")}


def task(job: str, index: int = 0) -> Cluster:
    return Cluster(JOBS, job, index, has_evaluator=False, source="TF_CONFIG")


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(train_batch_size=12, **settings)


def place_of(job: str, index: int = 0, towers: int = 1, **settings: Any) -> Replication:
    plan = make_plan(towers, 1)
    return cluster_session.replication(config(**settings), task(job, index), plan)


def test_trainers_agree_on_what_decides_a_step_and_not_on_their_machines(tutorial_data, tmp_path):
    place: pathlib.Path = tmp_path / "data"
    record_files.write_numbered(place, "train", 20)
    records, others = open_records(str(tutorial_data)), open_records(str(place))
    one = terms(TrainConfig(model="mlp", num_towers=2), records)
    settings: dict[str, Any] = {"sync": False, "hidden_units": 50, "seed": 7}
    other = terms(TrainConfig(model="mlp", output_dir="elsewhere", **settings), others)
    unlike = {key: other[key] for key in one if one[key] != other[key]}
    assert unlike.pop("the training records")
    assert unlike == {"--sync": "False", "--hidden-units": "50", "--seed": "7"}


def test_asynchronous_trainers_share_the_parameter_servers():
    assert dataclasses.asdict(place_of("worker", 1, towers=2, sync=False)) == {
        "variable_devices": (f"/job:ps/task:0/{CPU}", f"/job:ps/task:1/{CPU}"),
        "tower_devices": ("/job:worker/task:1/cpu:0", "/job:worker/task:1/cpu:1"),
        "task_device": "/job:worker/task:1",
        "num_machines": 1,
        "num_replicas": 3,
        "replica": 2,
        "replicas_to_aggregate": None,
        "transfer_dtype": tf.float32,
    }


def test_an_in_graph_master_has_its_towers_on_every_machine():
    place = place_of("master", towers=2, replication="in-graph")
    machines = ("/job:master/task:0", "/job:worker/task:0", "/job:worker/task:1")
    assert place.tower_devices == tuple(f"{one}/cpu:{n}" for one in machines for n in (0, 1))
    assert (place.num_machines, place.num_replicas, place.replicas_to_aggregate) == (3, 1, None)


def test_the_masters_estimator_knows_no_cluster_and_a_workers_knows_its_task(job):
    session = job.session("master")
    master = session.run_config(model_dir="/nowhere")
    assert (master.master, master.is_chief, master.task_type) == (session._target, True, "worker")
    assert (master.evaluation_master, master.model_dir) == ("", "/nowhere")
    assert master.cluster_spec.as_dict() == {}
    filters = list(master.session_config.device_filters)
    assert filters == ["/job:ps", "/job:master/task:0"]
    worker = job.session("worker", 1).run_config()
    assert (worker.is_chief, worker.task_type, worker.task_id) == (False, "worker", 1)
    jobs = {job: list(tasks) for job, tasks in job.addresses.items()}
    assert worker.cluster_spec.as_dict() == jobs
    assert list(worker.session_config.device_filters) == ["/job:ps", "/job:worker/task:1"]
