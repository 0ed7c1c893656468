"""A trainer in its cluster: whom it needs, and what ends it."""

import contextlib
import socket
import threading
import time
from typing import Any
from unittest import mock

import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster, Task, digest
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, TrainingOver
from cifar10.guard import guard, server, watchdog
from cifar10.guard.guard import ClusterGuard
from cifar10.guard.handshake import Handshake
from cifar10.guard.peers import Peers
from cifar10.guard.server import CHIEF, Registry, TaskIdentity
from cifar10.host.process import StopRequest
from cifar10.input.records import open_records
from cifar10.output import run_file
from cifar10.step.params import ModelParams, Replication
from cifar10.tf_internals import SESSIONS
from testbeds.ports import free_ports
from tests.cifar10.steps import make_plan


class Job:
    """A master, two workers and two parameter servers, of which a test makes sessions."""

    def __init__(self, output_dir: str, data_dir: str) -> None:
        self._sessions: list[ClusterGuard] = []
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

    def params(self, job: str, index: int = 0, **settings: Any) -> ModelParams:
        config = TrainConfig(
            model="mlp", train_batch_size=12, num_towers=1, output_dir=self.output_dir, **settings
        )
        cluster, plan = self.cluster(job, index), make_plan(1, 1)
        return ModelParams(config, plan, replication=Replication.of(config, cluster, plan))

    def session(self, job: str, index: int = 0, **settings: Any) -> ClusterGuard:
        params, cluster = self.params(job, index, **settings), self.cluster(job, index)
        session = ClusterGuard(params, cluster, self.records, self.stop)
        self._sessions.append(session)
        return session

    def end(self) -> None:
        for session in self._sessions:
            session.close()


@pytest.fixture
def job(monkeypatch, tmp_path, tutorial_data):
    # The test's servers answer, but say nothing of their job.
    monkeypatch.setattr(Handshake, "meet", lambda self, task: True)
    found = Job(str(tmp_path), str(tutorial_data))
    yield found
    found.end()


def no_check() -> None:
    pass


def needs(session: ClusterGuard) -> list[tuple[list[str], int]]:
    """The labels of tasks, and how many of them may be missing."""
    return [([task.label for task in tasks], spare) for tasks, spare in session._needs()]


def labelled(session: ClusterGuard, *labels: str) -> list[Task]:
    return [task for task in session.cluster.tasks if task.label in labels]


SERVERS, WORKERS = (["ps/0", "ps/1"], 0), (["worker/0", "worker/1"], 0)
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
        (watchdog.START, at_first),
        (watchdog.STEP, in_step),
        (watchdog.SAVING, saving),
        (watchdog.EVALUATION, saving),
    ):
        session.activity.begin(phase)
        assert needs(session) == expected, phase


def test_a_worker_needs_the_master_and_the_servers(job):
    assert needs(job.session("worker")) == [(["master/0", "ps/0", "ps/1"], 0)]


def lose(session: ClusterGuard, *labels: str) -> None:
    """Tasks of a session, whose threads do not ask, have been silent for a long time."""
    for task in labelled(session, *labels):
        session._peers._states[task].seen = time.monotonic() - 1000.0


def test_a_trainer_whose_task_is_lost_ends_unless_training_is_over(job, capsys):
    over = [False]

    def check() -> None:
        if over[0]:
            raise TrainingOver(7)
        raise Stopped(15)  # The main thread handles signals itself.

    session = job.session("worker")

    def look() -> None:
        session.check(check)

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


def test_after_a_signal_a_step_that_waits_in_vain_is_ended_and_a_save_is_not(job):
    session = job.session("master", cluster_timeout=1e6)

    def look() -> None:
        session.check(no_check)

    session.activity.begin(watchdog.STEP)
    lose(session, "worker/0")
    look()
    job.stop._note(15)
    look()  # The worker has left in good order.
    (worker,) = labelled(session, "worker/0")
    session._peers._states[worker].probe.is_here = True
    with pytest.raises(Stopped):
        look()
    session.activity.begin(watchdog.SAVING)
    look()
    lose(session, "ps/1")  # Without the weights, nothing can be saved.
    with pytest.raises(Stopped):
        look()


def test_after_a_signal_a_worker_ends_once_its_master_has_gone(job):
    session = job.session("worker", cluster_timeout=1e6)

    def look() -> None:
        session.check(no_check)

    (master,) = labelled(session, "master/0")
    session._peers._states[master].probe.is_here = True
    job.stop._note(15)
    look()
    session._peers._states[master].probe.is_here = False
    with pytest.raises(Stopped):
        look()


def test_a_task_that_answers_is_used_only_once_it_was_met(job, monkeypatch):
    def refuse(self: Handshake, task: Task) -> bool:
        raise ConfigError(f"{task} belongs to another job")

    monkeypatch.setattr(Handshake, "meet", refuse)
    server.start(job.cluster("ps", 0), tf.ConfigProto())
    session = job.session("master")
    with pytest.raises(ConfigError, match="^ps/0 .* belongs to another job"):
        session.wait_for_tasks(no_check)


@pytest.mark.parametrize(
    ("replication", "told"),
    [("between-graph", ["ps/0", "ps/1"]), ("in-graph", ["ps/0", "ps/1", "worker/0", "worker/1"])],
)
def test_a_master_tells_each_task_that_only_serves_of_its_end(job, replication, told):
    tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    for task in tasks:
        server.start(job.cluster(*task), tf.ConfigProto())
    session = job.session("master", replication=replication)
    session.tell_end()
    session.close()
    heard = []
    for task in tasks:
        own = job.cluster(*task).own
        with contextlib.closing(Registry(own.target)) as registry:
            heard += [own.role] * registry.has_ended()
    assert heard == told


def test_with_nothing_left_to_train_no_task_counts_as_silent(job):
    session = job.session("master", replication="in-graph", cluster_timeout=300.0)
    lose(session, "ps/0", "worker/0")
    assert session.activity.hears_all()


def test_sessions_are_checked_and_tasks_watched_until_training_is_left(job, monkeypatch):
    watched: list[Any] = []
    monkeypatch.setattr(guard, "watching", lambda check: mock.MagicMock(seen=watched.append(check)))
    monkeypatch.setattr(ClusterGuard, "wait_for_tasks", lambda self, check: check())
    monkeypatch.setattr(ClusterGuard, "meet_serving", lambda self: 1 / 0)
    with guard.of(job.params("worker"), job.cluster("worker"), job.records, job.stop) as guarded:
        assert guarded.activity.phase is None
        with pytest.raises(ZeroDivisionError):
            SESSIONS.SessionManager().wait_for_session(job.cluster("worker").own.target)
        assert len(watched) == 2
    assert SESSIONS.SessionManager is tf.train.SessionManager
    with guard.of(job.params("worker"), None, job.records, job.stop) as alone:
        assert alone.activity.phase == watchdog.START
        assert SESSIONS.SessionManager is tf.train.SessionManager
    assert watched[2:] == [alone.activity]


@pytest.mark.parametrize(
    ("task", "index", "phase"), [("master", 0, watchdog.START), ("worker", 1, None)]
)
def test_each_new_session_meets_the_tasks_that_serve_until_all_answer(
    job, monkeypatch, task, index, phase
):
    monkeypatch.setattr(guard, "_MEET_AGAIN_SECS", 0.01)
    met: list[str] = []
    session = job.session(task, index)
    noted = session.activity
    noted.begin(watchdog.STEP)

    def meet(_: Handshake, task: Task) -> bool:
        met.append(task.label)
        return met != ["ps/0"]

    monkeypatch.setattr(Handshake, "meet", meet)
    monkeypatch.setattr(Peers, "wait_for", lambda *_: None)
    session.meet_serving()
    assert met == ["ps/0", "ps/0", "ps/1"]
    assert noted.phase == phase  # The step of the session before is over.


def test_a_ps_that_never_says_whom_it_serves_ends_a_new_session(job, monkeypatch):
    monkeypatch.setattr(guard, "_MEET_AGAIN_SECS", 0.01)
    monkeypatch.setattr(Handshake, "meet", lambda *_: False)
    monkeypatch.setattr(Peers, "wait_for", lambda *_: None)
    session = job.session("worker", cluster_timeout=0.1)
    with pytest.raises(
        TrainingError, match=r"^ps/0 .* has not said for 0\.1 s .* whom it serves; "
    ):
        session.meet_serving()


def test_a_master_that_one_ps_refuses_has_claimed_no_other(job, monkeypatch):
    monkeypatch.undo()  # These servers say who they are.
    targets = [job.cluster("ps", index).own.target for index in range(2)]
    for index in range(2):
        server.start(job.cluster("ps", index), tf.ConfigProto())
    other = TaskIdentity.of(job.cluster("master"), "0" * 64, "there:/other")
    with contextlib.closing(Registry(targets[0])) as first:
        first.write(CHIEF, other)
    session = job.session("master", cluster_timeout=60.0)
    session._peers.start()
    session._peers.wait_for(labelled(session, "ps/1"))
    with pytest.raises(ConfigError, match="^ps/0 .* serves another run, that of there:/other, "):
        session.meet_serving()
    with contextlib.closing(Registry(targets[1])) as second:
        assert second.read(CHIEF) is None


def test_a_master_is_known_by_the_owner_of_its_output_folder_and_a_worker_learns_it(job):
    first, other = (job.session(task)._handshake.identity for task in ("master", "worker"))
    assert (other.run, other.output_dir) == ("", "")
    assert first.output_dir == f"{socket.gethostname()}:{job.output_dir}"
    assert first.run == digest(run_file.read_or_make_owner(job.output_dir))
