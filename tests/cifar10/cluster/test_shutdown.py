"""How trainers tell a parameter server of their end, and when it is over: with real servers."""

from collections.abc import Iterator
from typing import Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster import introduction, server, shutdown
from cifar10.cluster.identity import Identity, Owner, digest
from cifar10.cluster.spec import Cluster
from testbeds.ports import free_ports


class Tasks:
    """A master, a worker and a parameter server, whose servers are in this process."""

    def __init__(self) -> None:
        master, worker, ps, self.nobody = [f"127.0.0.1:{port}" for port in free_ports(4)]
        self._jobs = {"master": (master,), "worker": (worker,), "ps": (ps, self.nobody)}
        self._targets = {
            job: str(server.start(self.task(job), tf.ConfigProto()).target) for job in self._jobs
        }

    def task(self, job: str) -> Cluster:
        return Cluster(self._jobs, job, 0, has_evaluator=False, source="TF_CONFIG")

    def listener(self) -> shutdown.ShutdownListener:
        return shutdown.ShutdownListener(
            self.task("ps"), ["master/0", "worker/0"], self._targets["ps"]
        )

    def tell(self, job: str, *indices: int, identity: Optional[Identity] = None) -> None:
        """The trainer tells ps/0, or the ones that are named, as itself or as someone else."""
        serving = [("ps", index) for index in indices or (0,)]
        task = self.task(job)
        shutdown.tell(task, serving, self._targets[job], identity or Identity.of(task))

    def claim(self, owner: Owner) -> None:
        """A master with this owner begins to use ps/0."""
        with introduction.conversation(self._jobs["ps"][0]) as ps:
            ps.claim(owner)


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    """TensorFlow's servers cannot be stopped: all tests have the same ones."""
    return Tasks()


@pytest.fixture
def listener(tasks) -> Iterator[shutdown.ShutdownListener]:
    """They have heard what earlier tests told."""
    found = tasks.listener()
    found._session.run(found._ended)
    yield found
    found._session.close()


def heard(listener: shutdown.ShutdownListener) -> tuple[set[str], bool, bool]:
    listener.listen()
    return listener.waiting, listener.master_ended, listener.is_over


def test_a_task_that_serves_waits_for_every_trainer(tasks, listener):
    assert heard(listener) == ({"master/0", "worker/0"}, False, False)
    tasks.tell("worker")
    assert heard(listener) == ({"master/0"}, False, False)
    tasks.tell("master")
    assert heard(listener) == (set(), True, True)


def test_who_is_still_here_after_the_masters_end_has_a_time_of_grace(tasks, listener, monkeypatch):
    assert shutdown.GRACE_SECS == 7.0
    tasks.tell("master")
    monkeypatch.setattr(shutdown, "GRACE_SECS", 1e6)
    assert heard(listener) == ({"worker/0"}, True, False)
    monkeypatch.setattr(shutdown, "GRACE_SECS", 0.0)
    assert heard(listener) == ({"worker/0"}, True, True)


def test_a_task_that_has_gone_is_not_told_and_the_others_are(tasks, listener):
    tasks.tell("master", 1, 0)
    tasks.tell("worker", 1, 0)
    assert heard(listener) == (set(), True, True)


def test_what_was_told_before_the_listener_was_made_is_heard(tasks):
    tasks.tell("master")
    late = tasks.listener()
    late.listen()
    assert late.master_ended


def test_the_end_of_another_job_is_not_heard(tasks, listener):
    other = Identity("master/0", None, {"master": ("ip0:1",), "ps": ("ip0:2",)})
    tasks.tell("master", identity=other)
    assert heard(listener) == ({"master/0", "worker/0"}, False, False)


@pytest.mark.parametrize(
    "text",
    [
        "master/0",
        '{"role": "master/0", "jobs": {"master": ["a"], "worker": ["b"], "ps": ["c"]}}',
    ],
)
def test_what_is_no_report_is_not_heard(tasks, listener, text):
    class Text(Identity):
        def as_text(self) -> str:
            return str(text)

    tasks.tell("master", identity=Text("master/0", None, {}))
    assert heard(listener) == ({"master/0", "worker/0"}, False, False)


def test_a_task_with_an_owner_hears_only_the_end_of_the_owners_run():
    tasks = Tasks()
    listener = tasks.listener()
    ours, theirs = Owner(digest("ours"), "here:/ours"), Owner(digest("theirs"), "there:/theirs")
    tasks.claim(ours)
    for owner in (None, theirs):
        tasks.tell("master", identity=Identity.of(tasks.task("master"), owner))
        assert heard(listener) == ({"master/0", "worker/0"}, False, False)
    tasks.tell("master", identity=Identity.of(tasks.task("master"), ours))
    assert heard(listener) == ({"worker/0"}, True, False)
