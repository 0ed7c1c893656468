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
from cifar10.cluster.spec import Cluster, Task
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, TrainingOver
from cifar10.host import activity
from cifar10.host.process import StopRequest
from cifar10.input.records import open_records
from cifar10.run import cluster_session
from cifar10.run.cluster_session import ClusterSession, terms
from cifar10.run.watchdog import Watchdog
from cifar10.step.params import Replication
from testbeds.ports import free_ports
from tests.cifar10 import record_files
from tests.cifar10.answering import answering
from tests.cifar10.steps import make_plan


class Job:
    """A master, two workers and two parameter servers, of which a test makes sessions."""

    def __init__(self, output_dir: str, data_dir: str) -> None:
        self._sessions: list[ClusterSession] = []
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
        session = ClusterSession(config, self.cluster(job, index), self.records, trains)
        self._sessions.append(session)
        return session

    def end(self) -> None:
        for session in self._sessions:
            session.close()

    @contextlib.contextmanager
    def answering(self, job: str) -> Iterator[None]:
        """Servers at the addresses of a job's tasks."""
        with contextlib.ExitStack() as stack:
            for address in self.addresses[job]:
                stack.enter_context(answering(port=int(address.split(":")[1])))
            yield


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


def test_a_trainer_whose_task_is_lost_ends_unless_training_is_over(job, checks, capsys):
    over = [False]

    def check() -> None:
        if over[0]:
            raise TrainingOver(7)
        raise Stopped(15)  # The main thread handles signals itself.

    session = job.session("worker")
    session._peers.wait_for = session._peers.start = lambda *_: None
    session.join(check)
    (look,) = checks
    look()
    lose(session, "worker/1")
    look()
    lose(session, "ps/0")
    with pytest.raises(TrainingError, match="^ps/0 "):
        look()
    for thread in threading.enumerate():
        if thread.name == "news":
            thread.join()
    assert capsys.readouterr().out.startswith("ps/0 (")
    over[0] = True
    with pytest.raises(TrainingOver):
        look()
    session.tell_end()  # From now on, it needs nobody.
    look()


def test_after_a_signal_a_step_that_waits_in_vain_is_ended_and_a_save_is_not(job, checks):
    session, stop = job.session("master"), StopRequest()
    session.heed_signals(stop)
    session.watchdog.activity.begin(activity.STEP)
    lose(session, "worker/0")
    checks[0]()
    stop._note(15)
    checks[0]()  # The worker has left in good order.
    (worker,) = labelled(session, "worker/0")
    session._peers._states[worker].is_here = True
    with pytest.raises(Stopped):
        checks[0]()
    session.watchdog.activity.begin(activity.SAVING)
    checks[0]()
    lose(session, "ps/1")  # Without the weights, nothing can be saved.
    with pytest.raises(Stopped):
        checks[0]()


@pytest.mark.parametrize(
    ("settings", "lost", "hears"),
    [
        ({}, ["worker/1"], False),
        ({"replicas_to_aggregate": 2}, ["worker/1"], True),
        ({"sync": False}, ["ps/0"], False),
    ],
)
def test_a_master_hears_all_whom_its_steps_need(job, settings, lost, hears):
    session = job.session("master", **settings)
    session.watchdog.activity.begin(activity.STEP)
    lose(session, *lost)
    assert session.hears_all() is hears


@pytest.mark.parametrize(
    ("replication", "told"),
    [("between-graph", ["ps/0", "ps/1"]), ("in-graph", ["ps/0", "ps/1", "worker/0", "worker/1"])],
)
def test_a_trainer_tells_each_task_that_only_serves_of_its_end_once(job, replication, told):
    tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    targets = {task: server.start(job.cluster(*task), tf.ConfigProto()) for task in tasks}
    session = job.session("master", replication=replication)
    session.tell_end()
    session.tell_end()
    session.close()
    heard = {}
    for (name, index), target in targets.items():
        with contextlib.closing(Board(target)) as board:
            heard[f"{name}/{index}"] = [one.role for one in board.ended()]
    assert heard == {one: ["master/0"] if one in told else [] for one in heard}


def test_a_session_with_nothing_left_to_train_waits_for_nobody(job, checks):
    session = job.session("master", trains=False, replication="in-graph", cluster_timeout=300.0)
    session.join(lambda: pytest.fail("it waits"))
    assert checks == []
    lose(session, "ps/0", "worker/0")
    assert session.hears_all()
    assert len(session.place.tower_devices) == 1
    assert session.place.examples_per_step(12) == 3 * 12


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


def test_a_task_that_does_not_say_whom_it_serves_is_waited_for_in_bounds(job, monkeypatch):
    session = job.session("master", cluster_timeout=0.3)
    monkeypatch.setattr(Acquaintance, "meet", lambda *_: False)
    monkeypatch.setattr(Peers, "wait_for", lambda *_: None)
    with pytest.raises(TrainingError, match=r"^ps/0 .* has not said for 0\.3 s whom it serves"):
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


def test_a_master_with_its_output_folder_remains_the_owner(job, tmp_path_factory):
    first, other = (job.session(task)._acquaintance.identity for task in ("master", "worker"))
    assert (other.run, other.place) == ("", "")
    assert first.place == f"{socket.gethostname()}:{job.output_dir}"
    cluster = job.cluster("master")
    assert cluster_session._run(job.output_dir, cluster) == (first.run, first.place)
    elsewhere = str(tmp_path_factory.mktemp("other"))
    assert cluster_session._run(elsewhere, cluster)[0] != first.run


# What trainers agree on, and their places.

CPU = "device:CPU:0"
JOBS = {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1", "e:1")}


def task(job: str, index: int = 0) -> Cluster:
    return Cluster(JOBS, job, index, has_evaluator=False, source="TF_CONFIG")


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(train_batch_size=12, **settings)


def place_of(job: str, index: int = 0, towers: int = 1, **settings: Any) -> Replication:
    plan = make_plan(towers, 1)
    return cluster_session.replication(config(**settings), task(job, index), plan, None)


@pytest.mark.parametrize(
    "setting",
    [
        {"train_batch_size": 32},
        {"sync": False},
        {"hidden_units": 50},
        {"schedule": "constant"},
        {"optimizer": "adam"},
        {"train_steps": 7},
        {"seed": 7},
    ],
    ids=str,
)
def test_trainers_agree_on_each_setting_that_decides_a_step(tutorial_data, setting):
    (name,) = setting
    records = open_records(str(tutorial_data))
    one = terms(TrainConfig(model="mlp"), records)
    other = terms(TrainConfig(model="mlp", **setting), records)
    flag = "--" + name.replace("_", "-")
    assert {key for key in one if one[key] != other[key]} == {flag}
    assert other[flag] == str(setting[name])


def test_trainers_agree_on_the_records_and_not_on_their_machines(tutorial_data, tmp_path):
    place: pathlib.Path = tmp_path / "data"
    record_files.write_numbered(place, "train", 20)
    one = terms(TrainConfig(num_towers=2), open_records(str(tutorial_data)))
    other = terms(TrainConfig(output_dir="elsewhere"), open_records(str(place)))
    assert {key for key in one if one[key] != other[key]} == {"the training records"}


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


def test_an_in_graph_master_has_towers_on_every_machine():
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    jobs = {"master": (addresses[0],), "worker": tuple(addresses[1:])}
    one = Cluster(jobs, "master", 0, has_evaluator=False, source="TF_CONFIG")
    targets = [
        server.start(dataclasses.replace(one, task_type=job, task_index=index), tf.ConfigProto())
        for job, index in (("worker", 0), ("worker", 1), ("master", 0))
    ]
    settings, plan = config(replication="in-graph"), make_plan(2, 1)
    place = cluster_session.replication(settings, one, plan, targets[-1])
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
def test_a_trainer_says_what_it_is_and_how_it_trains(job, settings, how, images):
    session = job.session("worker", 1, trains=False, **settings)
    session.join(no_check)
    assert session.place.examples_per_step(12) == images
    assert session.describe(images) == (
        f"worker/1 of 3 trainers and 2 parameter servers, {how}, {images} images a global step"
    )


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
