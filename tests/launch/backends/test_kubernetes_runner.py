"""What the launcher asks of the cluster before it deletes a job, and what it does with answers."""

import contextlib
import io
import queue
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional, cast

import pytest

from launch.backends.kubernetes import run as kubernetes_run
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.objects import TFJobState
from launch.backends.kubernetes.pods import read_pod
from launch.backends.kubernetes.runner import Runner
from launch.backends.kubernetes.tfjob import TFJob
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.errors import HostError
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run_loop import RunLoop
from tests.launch.backends.samples import (
    RUNNING,
    kubernetes_cluster,
    pod_status,
    terminated,
)

DOWN = HostError("the cluster does not answer")


class Objects:
    """A TFJob of which each request gets the answer that a test chooses."""

    name = "job"

    def __init__(self) -> None:
        self.state: Any = TFJobState()  # an error is raised
        self.exists: Any = True
        self.asked: list[str] = []

    def adopt(self, now: float) -> None:
        """Does nothing."""

    def look(self) -> Optional[TFJobState]:
        self.asked.append("look")
        if isinstance(self.state, HostError):
            raise self.state
        return cast(Optional[TFJobState], self.state)

    def delete(self) -> bool:
        self.asked.append("delete")
        if isinstance(self.exists, HostError):
            raise self.exists
        return bool(self.exists)


class Loop:
    """A run loop without a loop."""

    def __init__(self) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.notes: list[str] = []
        self.lines: list[str] = []

    def take_lines(self, task: str, host: str, lines: Sequence[str]) -> None:
        self.lines += lines

    def note(self, *texts: str) -> None:
        self.notes += texts


class Rig:
    """A runner that follows a master, a worker and a ps, all of which run."""

    def __init__(self) -> None:
        kubectl = Kubectl(None, None)
        kubectl.command = lambda *words: ["true"]  # type: ignore[method-assign]
        self.objects, self.loop, self.now = Objects(), Loop(), 1000.0
        self.follower = Follower(make_job(kubernetes_cluster()).tasks, Limits(), 0, self.now)
        self.runner = Runner(
            kubectl,
            cast(TFJob, self.objects),
            self.follower,
            cast("RunLoop[Any]", self.loop),
            ["first line\nthe second line\nlast\n"],
        )
        for task in ("master", "worker", "ps"):
            self.pod("ADDED", task, RUNNING)

    def pod(self, event: str, task: str, status: dict[str, Any], deleted: bool = False) -> None:
        found = pod_status(status, (task, 0), task)
        if deleted:
            found["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        pod = read_pod(found)
        assert pod is not None
        self.runner._take_pod(event, pod, self.now)

    def tick(self, secs: float = 0.0) -> None:
        self.now += secs
        self.runner.tick(self.now)

    @property
    def reason(self) -> str:
        assert self.follower.verdict is not None
        return self.follower.verdict.reason


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.runner.close()


def test_the_leads_log_is_waited_for_though_the_job_is_shown_as_done_before_its_pods(
    rig: Rig,
) -> None:
    rig.follower.saw_tfjob(TFJobState(succeeded=True), rig.now)
    assert rig.runner.has_lines_to_come()
    rig.pod("MODIFIED", "master", terminated(0))
    while rig.runner.has_lines_to_come():
        rig.runner.handle(rig.loop.events.get(timeout=30))


def test_a_job_that_fails_is_looked_at_and_deleted(rig: Rig) -> None:
    rig.pod("MODIFIED", "worker", terminated(3))
    rig.tick()
    rig.tick(10)
    assert rig.objects.asked == ["look", "delete"]
    assert rig.reason == "worker/0 on n1 failed: exit code 3"


@pytest.mark.parametrize(("state", "exists"), [(None, True), (DOWN, False)])
def test_a_job_that_is_gone_by_then_was_deleted_by_someone(
    rig: Rig, state: Any, exists: bool
) -> None:
    rig.objects.state, rig.objects.exists = state, exists
    rig.pod("MODIFIED", "worker", terminated(143), deleted=True)
    rig.tick()
    assert rig.reason == "the TFJob was deleted by someone else"


def test_a_job_that_is_done_by_then_is_done(rig: Rig) -> None:
    rig.objects.state = TFJobState(succeeded=True)
    rig.pod("MODIFIED", "worker", terminated(143), deleted=True)
    rig.tick()
    assert rig.reason == "master/0 is done"
    assert rig.objects.asked == ["look"]  # the other tasks have time to end


def test_a_deletion_that_gets_no_answer_is_tried_again_and_is_nobody_elses(rig: Rig) -> None:
    rig.objects.state = rig.objects.exists = DOWN
    rig.pod("MODIFIED", "worker", terminated(3))
    rig.tick()
    rig.objects.state, rig.objects.exists = None, False
    rig.tick(1)
    assert rig.objects.asked == ["look", "delete"]
    rig.tick(5)
    assert rig.reason == "worker/0 on n1 failed: exit code 3"
    assert not rig.follower.wants_deletion(rig.now)
    told = "the cluster does not answer; trying again to delete TFJob job"
    assert rig.loop.notes.count(told) == 1


def test_in_a_list_a_task_that_failed_counts_more_than_those_deleted_for_that(rig: Rig) -> None:
    rig.pod("ADDED", "master", terminated(143), deleted=True)
    rig.pod("ADDED", "worker", terminated(3))
    rig.tick()
    assert rig.reason == "worker/0 on n1 failed: exit code 3"


def test_lists_are_asked_for_until_the_next_watch_has_shown_all_pods_that_should_exist(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(rig.runner._list, "ask", lambda: asked.append("list"))
    rig.tick()
    assert asked == []
    rig.runner._watch_ended("pods", rig.now)
    for task in ("master", "worker"):
        rig.pod("ADDED", task, RUNNING)
    rig.tick()
    rig.tick(2)
    assert asked == ["list", "list"]
    rig.pod("ADDED", "ps", RUNNING)
    rig.tick(2)
    assert asked == ["list", "list"]


def test_the_follower_learns_whether_watches_show_the_job_and_its_pods(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(rig.follower, "watch_ended", lambda: ended.append("pods"))
    rig.runner._take_watched("tfjob", ("ADDED", TFJobState()), rig.now)
    assert rig.follower.sees_tfjob
    rig.runner._watch_ended("events", rig.now)
    assert rig.follower.sees_tfjob
    rig.runner._watch_ended("tfjob", rig.now)
    assert not rig.follower.sees_tfjob
    rig.tick()  # the next watch is opened, and has not delivered an item
    assert not rig.follower.sees_tfjob
    rig.runner._take_watched("tfjob", ("ADDED", TFJobState()), rig.now)
    assert rig.follower.sees_tfjob
    assert ended == []
    rig.runner._watch_ended("pods", rig.now)
    assert ended == ["pods"]


def test_each_line_of_a_secret_is_masked(rig: Rig) -> None:
    pod = read_pod(pod_status(RUNNING))
    assert pod is not None
    lines = ["first line", "a second line", "the second line!", "last"]
    rig.runner._take_lines([(pod, line) for line in lines])
    assert rig.loop.lines == ["***", "a second line", "***!", "last"]


def test_a_pod_of_a_task_that_the_job_does_not_have_is_left_out_and_named_once(rig: Rig) -> None:
    found = pod_status(RUNNING, ("worker", 1), "new")
    pod = read_pod(found)
    assert pod is not None
    for event in ("ADDED", "MODIFIED"):
        rig.runner._take_pod(event, pod, rig.now)
    rig.tick()
    assert rig.loop.notes == ["worker/1: this job has no such task; its pod is left out"]
    assert "job-worker-1" not in rig.runner._logs._logs


@pytest.mark.parametrize(
    ("error", "exists", "is_left"),
    [
        (RuntimeError("a mistake"), True, True),
        (RuntimeError("a mistake"), False, False),
        (HostError("refused"), True, False),
    ],
)
def test_an_error_of_the_launcher_leaves_a_job_that_exists_and_one_of_the_cluster_deletes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, exists: bool, is_left: bool
) -> None:
    removed: list[str] = []

    class Created(Objects):
        def create(self) -> None:
            if not exists:
                raise error

        def remove(self, run_id: str) -> None:
            removed.append(run_id)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(kubernetes_run, "connect", lambda settings: Kubectl(None, None))
    created = Created()
    created.exists = exists
    monkeypatch.setattr(kubernetes_run, "TFJob", lambda *_: created)
    monkeypatch.setattr(Runner, "tick", fail)
    job, screen = make_job(kubernetes_cluster()), io.StringIO()
    folder = RunFolder.create(tmp_path, job)
    with contextlib.closing(Display(screen, live=False)) as display, pytest.raises(type(error)):
        kubernetes_run.run(job, folder, display)
    assert removed == ([] if is_left else [folder.run_id])
    name = folder.record()["kubernetes"]["name"]
    said = f"TFJob {name} goes on; to end it: clean --run {folder.run_id}"
    assert (said in screen.getvalue()) == is_left
