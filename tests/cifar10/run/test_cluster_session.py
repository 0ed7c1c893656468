"""A trainer in its cluster: whom it needs, whom it asks, what ends it, whom it tells of its end."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster import peers, server
from cifar10.cluster.acquaintance import Acquaintance
from cifar10.cluster.identity import Identity
from cifar10.cluster.peers import Peers
from cifar10.cluster.server import Board
from cifar10.cluster.spec import Cluster, Task
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, TrainingOver
from cifar10.host import activity
from cifar10.host.signals import StopRequest
from cifar10.run import cluster_session
from cifar10.run.cluster_session import ClusterSession
from cifar10.run.watchdog import Watchdog
from cifar10.tf_internals import session_wait
from testbeds.ports import free_ports
from tests.cifar10.answering import answering
from tests.cifar10.steps import make_plan


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

    def session(
        self, job: str, index: int = 0, trains: bool = True, **settings: Any
    ) -> ClusterSession:
        config = TrainConfig(train_batch_size=12, output_dir=self.output_dir, **settings)
        plan = make_plan(1, 1)
        session = ClusterSession(config, self.cluster(job, index), plan, trains=trains)
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
def job(monkeypatch, tmp_path):
    """A session starts its server and looks often at the others; both is over with the test."""
    monkeypatch.setattr(session_wait.MODULE, "SessionManager", tf.train.SessionManager)
    monkeypatch.setattr(peers, "_PERIOD_SECS", 0.05)
    # The test's servers answer, but say nothing of their job.
    monkeypatch.setattr(Acquaintance, "meet", lambda self, task: True)
    found = Job(str(tmp_path))
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


def test_a_parameter_server_that_stays_away_is_named(job):
    with pytest.raises(TrainingError) as missed:
        job.session("master", cluster_timeout=0.5).join(no_check)
    one, other = job.addresses["ps"]
    assert str(missed.value).startswith(f"ps/0 ({one}), ps/1 ({other}) have not answered")


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


def lose(session: ClusterSession, *labels: str, is_here: bool = False) -> None:
    """Tasks of a session, whose threads do not ask, have been silent for a long time."""
    for task in labelled(session, *labels):
        state = session._peers._states[task]
        state.seen, state.is_here = time.monotonic() - 1000.0, is_here


def test_a_trainer_whose_task_is_lost_ends_unless_training_is_over(job, checks, capsys):
    over = [False]

    def check() -> None:
        if over[0]:
            raise TrainingOver(7)
        raise Stopped(15)  # The main thread handles signals itself.

    session = job.session("worker")
    session.trains = False
    session.join(check)
    assert checks == []
    session.trains = True
    session._peers.wait_for = session._peers.start = lambda *_: None
    session.join(check)
    (look,) = checks
    look()
    lose(session, "worker/1")
    look()
    lose(session, "ps/0")
    with pytest.raises(TrainingError, match="^ps/0 "):
        look()
    assert capsys.readouterr().out.startswith("ps/0 (")
    over[0] = True
    with pytest.raises(TrainingOver):
        look()
    session.tell_end()  # From now on, it needs nobody.
    look()


@pytest.mark.parametrize(
    ("settings", "gone", "hanging", "ends"),
    [
        ({}, [], ["worker/0"], True),
        ({}, ["worker/0"], [], False),
        ({"sync": False}, [], ["worker/0"], False),
        # An update takes two gradients of three, so a worker is to spare.
        ({"replicas_to_aggregate": 2}, [], ["worker/0"], False),
        ({"replicas_to_aggregate": 2}, ["worker/1"], ["worker/0"], True),
        ({"replication": "in-graph"}, ["worker/1"], [], True),
    ],
)
def test_after_a_signal_a_step_that_waits_in_vain_is_ended_and_a_save_is_not(
    job, checks, settings, gone, hanging, ends
):
    session, stop = job.session("master", **settings), StopRequest()
    session.heed_signals(stop)
    session.watchdog.activity.begin(activity.STEP)
    lose(session, *gone)
    lose(session, *hanging, is_here=True)
    checks[0]()
    stop._note(15)
    with pytest.raises(Stopped) if ends else contextlib.nullcontext():
        checks[0]()
    session.watchdog.activity.begin(activity.SAVING)
    checks[0]()
    lose(session, "ps/1", is_here=True)  # Without the weights, nothing can be saved.
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


def test_a_session_with_nothing_left_to_train_waits_for_nobody(job):
    session = job.session("master", trains=False, replication="in-graph", cluster_timeout=300.0)
    session.join(lambda: pytest.fail("it waits"))
    lose(session, "ps/0", "worker/0")
    assert session.hears_all()
    place = session.replication()
    assert len(place.tower_devices) == 1
    assert place.examples_per_step(12) == 3 * 12


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("master", ["ps/0", "ps/1", "worker/0", "worker/1"]),
        ("worker", ["master/0", "ps/0", "ps/1"]),
    ],
)
def test_a_session_asks_the_tasks_that_it_needs_who_they_are(job, task, labels):
    assert sorted(one.label for one in job.session(task)._acquaintance._asked) == labels


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
    session_wait.MODULE.SessionManager.keywords["check"]()
    assert met == ["ps/0", "ps/0", "ps/1"]
    assert noted.phase == phase  # The step of the session before is over.


def test_a_master_that_one_ps_refuses_has_claimed_no_other(job, monkeypatch):
    monkeypatch.undo()  # These servers say who they are.
    monkeypatch.setattr(session_wait.MODULE, "SessionManager", tf.train.SessionManager)
    targets = [server.start(job.cluster("ps", index), tf.ConfigProto()) for index in range(2)]
    other = Identity.of(job.cluster("master"), "0" * 64, "there:/other")
    with contextlib.closing(Board(targets[0])) as first:
        first.claim(other)
    session = job.session("master", cluster_timeout=60.0)
    session._peers.start()
    session._peers.wait_for(labelled(session, "ps/1"))
    with pytest.raises(ConfigError, match="^ps/0 .* serves another run: that of there:/other, "):
        session.meet_serving()
    with contextlib.closing(Board(targets[1])) as second:
        assert second.master() is None


def test_a_master_with_its_output_folder_remains_the_owner(job, tmp_path_factory):
    first, other = (job.session(task)._acquaintance.identity for task in ("master", "worker"))
    assert (other.run, other.place) == ("", "")
    assert first.place == f"{socket.gethostname()}:{job.output_dir}"
    config, cluster = TrainConfig(output_dir=job.output_dir), job.cluster("master")
    assert cluster_session._run(config, cluster) == (first.run, first.place)
    elsewhere = TrainConfig(output_dir=str(tmp_path_factory.mktemp("other")))
    assert cluster_session._run(elsewhere, cluster)[0] != first.run
