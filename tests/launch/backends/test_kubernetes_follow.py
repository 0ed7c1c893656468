"""What a job's pods and its TFJob say, how the job ends by that, and when it is deleted."""

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
from launch.backends.kubernetes.objects import TFJobState, read_tfjob, read_warning
from launch.backends.kubernetes.pods import read_pod
from launch.backends.kubernetes.runner import Runner
from launch.backends.kubernetes.tfjob import TFJob
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.errors import HostError
from launch.record.outcome import Cause
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run_loop import RunLoop
from tests.launch.backends.samples import (
    RUNNING,
    container_state,
    kubernetes_cluster,
    pod_status,
    terminated,
)

PULLING = container_state(waiting={"reason": "ImagePullBackOff", "message": 'image "x" not found'})
NO_NODE = {"reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient gpu."}
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", **NO_NODE}],
}
UNWRITABLE = "/data/output (volume nfs:/results) is not writable for uid 1000, gid 1000: ..."
PAST_DEADLINE = {
    **container_state(terminated={"exitCode": 143, "reason": "Error"}),
    "phase": "Failed",
    "reason": "DeadlineExceeded",
    "message": "Pod was active",
}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}


def checked(**state: Any) -> dict[str, Any]:
    """The status of a pod whose init container has this state."""
    waiting = container_state(waiting={"reason": "PodInitializing"})
    inits = [{"name": "check-folders", "state": state}]
    return {**waiting, "phase": "Pending", "initContainerStatuses": inits}


@pytest.mark.parametrize(
    ("status", "state", "code", "words"),
    [
        (RUNNING, "running", None, ""),
        (terminated(3), "ended", 3, "exit code 3"),
        (terminated(137, "OOMKilled"), "ended", 137, "exit code 137, OOMKilled; it needs more mem"),
        (EVICTED, "ended", None, "Evicted: The node was low on memory."),
        (UNSCHEDULABLE, "waiting", None, "Unschedulable: 0/3 nodes are available: 3 Insufficient"),
        (PULLING, "waiting", None, 'ImagePullBackOff: image "x" not found; look at `image:` and '),
        (checked(terminated={"exitCode": 2, "message": UNWRITABLE}), "ended", 2, UNWRITABLE),
        (PAST_DEADLINE, "ended", 143, "DeadlineExceeded: Pod was active; `deadline_secs:` under "),
    ],
)
def test_a_pod_says_how_it_is(status: Any, state: str, code: Any, words: str) -> None:
    found = read_pod(pod_status(status))
    assert found is not None
    assert (found.task, found.node) == ("worker/0", "n1")
    assert (found.state, found.code) == (state, code)
    assert found.words.startswith(words)
    assert bool(found.words) == bool(words)


class Told:
    """A follower of a master, a worker and a ps, and the clock."""

    def __init__(self, restarts: int = 0, **limits: Any) -> None:
        self.now = 0.0
        tasks = make_job(kubernetes_cluster()).tasks
        self.follower = Follower(tasks, Limits(**limits), restarts, self.now)

    def pod(
        self, task: str, status: dict[str, Any], uid: str = "1", deleted: bool = False
    ) -> list[str]:
        kind, _, index = task.partition("/")
        pod = pod_status(status, (kind, int(index)), f"{task}-{uid}")
        if deleted:
            pod["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        found = read_pod(pod)
        assert found is not None
        return self.follower.saw_pod(found, self.now)

    def gone(self, task: str, uid: str = "1") -> None:
        self.follower.pod_gone(f"{task}-{uid}", self.now)

    def all_run(self) -> None:
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, RUNNING)

    def pass_secs(self, secs: float) -> list[str]:
        self.now += secs
        return self.follower.tick(self.now)

    def all_are_gone(self) -> None:
        """The launcher deletes the TFJob, and all pods end by that."""
        self.follower.asks_for_deletion()
        self.follower.deleted(self.now)
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, terminated(143), deleted=True)
            self.gone(task)

    @property
    def cause(self) -> Optional[Cause]:
        found = self.follower.outcome or self.follower.verdict
        assert found is not None
        return found.cause

    @property
    def end(self) -> tuple[int, str]:
        assert self.follower.verdict is not None
        return self.follower.verdict.exit_code, self.follower.verdict.reason


def running(restarts: int = 0, **limits: Any) -> Told:
    """Returns a follower whose pods all run."""
    told = Told(restarts, **limits)
    told.all_run()
    return told


def test_the_job_is_over_with_its_master() -> None:
    told = running(grace_secs=30)
    told.pod("master/0", terminated(0, "Completed"))
    assert told.end == (0, "master/0 is done")
    told.pass_secs(29)
    assert not told.follower.wants_deletion(told.now)  # the others may still end by themselves
    told.pod("worker/0", terminated(0, "Completed"))
    told.pod("ps/0", terminated(0, "Completed"))
    assert told.follower.wants_deletion(told.now)
    told.follower.deleted(told.now)
    told.pass_secs(0)
    assert told.follower.outcome is not None


def test_a_pod_that_is_made_anew_is_counted() -> None:
    told = running(restarts=1)
    assert told.pod("worker/0", EVICTED) == [
        "worker/0 on n1: Evicted: The node was low on memory.; restart 1 of 1"
    ]
    told.pod("worker/0", RUNNING, uid="2")
    assert told.follower.states["worker/0"].status == "running"
    told.pod("worker/0", terminated(137), uid="2")
    assert told.end == (137, "worker/0 on n1 failed: exit code 137, after 1 restarts")


def test_an_error_is_not_made_anew() -> None:
    told = running(restarts=5)
    told.pod("worker/0", terminated(1))
    assert told.end == (1, "worker/0 on n1 failed: exit code 1")


def test_a_folder_that_cannot_be_used_is_the_cause_and_no_pod_is_made_anew() -> None:
    told = Told(restarts=5)
    told.pod("worker/0", checked(terminated={"exitCode": 2, "message": UNWRITABLE}))
    assert told.end == (2, f"worker/0 on n1 failed: {UNWRITABLE}")
    assert told.follower.wants_deletion(told.now)


def test_a_pod_whose_deadline_is_over_is_not_made_anew() -> None:
    told = running(restarts=5)
    told.pod("worker/0", PAST_DEADLINE)
    assert told.end[0] == 124
    assert told.end[1].startswith("worker/0 on n1 failed: DeadlineExceeded: Pod was active")
    assert told.cause is Cause.TIME_LIMIT


def test_a_deadline_of_the_job_is_the_cause_though_its_pods_end_first() -> None:
    told = running()
    told.pod("worker/0", terminated(143), deleted=True)
    words = "Job cifar10 has failed because it was active longer than specified deadline"
    failed = {"type": "Failed", "status": "True", "message": words}
    told.follower.saw_tfjob(read_tfjob({"status": {"conditions": [failed]}}), told.now)
    assert told.end == (124, f"{words}; `deadline_secs:` under `kubernetes:` is the limit")
    assert told.cause is Cause.TIME_LIMIT


def test_an_image_that_does_not_come_fails_after_a_while() -> None:
    told = Told()
    assert "worker/0 waits: ImagePullBackOff" in told.pod("worker/0", PULLING)[0]
    told.pass_secs(59)
    assert told.follower.verdict is None
    told.pass_secs(2)
    assert told.end[0] == 1
    assert "worker/0 on n1 failed: ImagePullBackOff" in told.end[1]


def test_a_pod_that_finds_no_node_is_named_at_the_limit() -> None:
    told = Told(start_secs=100)
    told.pod("master/0", RUNNING)
    told.pod("worker/0", UNSCHEDULABLE)
    told.pass_secs(99)
    assert told.follower.verdict is None
    told.pass_secs(2)
    code, reason = told.end
    assert code == 124
    assert reason.startswith(
        "no training step within 100 s: worker/0 waits: Unschedulable: 0/3 nodes are available"
    )


def test_a_job_that_nobody_makes_pods_of_is_named_at_the_limit() -> None:
    told = Told(start_secs=100)
    warning = {
        "involvedObject": {"name": "job"},
        "reason": "FailedCreatePod",
        "message": "forbidden: exceeded quota",
    }
    notes = told.follower.warned(read_warning(warning), "job")
    assert notes[0] == "master/0 waits: FailedCreatePod: forbidden: exceeded quota"
    assert told.follower.warned(read_warning(warning), "job") == []
    told.pass_secs(101)
    assert "master/0 waits: FailedCreatePod: forbidden: exceeded quota" in told.end[1]


def test_a_failed_job_waits_for_word_of_the_pod_that_has() -> None:
    told = running()
    condition = {"type": "Failed", "status": "True", "message": "1 Worker replica(s) failed"}
    told.follower.saw_tfjob(read_tfjob({"status": {"conditions": [condition]}}), told.now)
    told.pass_secs(2)
    assert told.follower.verdict is None
    told.pass_secs(2)
    assert told.end == (1, "the TFJob has failed: 1 Worker replica(s) failed")


def test_pods_that_do_not_end_are_named() -> None:
    told = running(stop_secs=10)
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.follower.deleted(told.now)
    told.gone("master/0")
    assert told.pass_secs(39) == []
    assert told.pass_secs(2) == ["worker/0, ps/0: end not confirmed; run `clean`"]
    assert told.follower.outcome is not None


# Whose fault it is.


def disrupted(status: dict[str, Any], reason: str, message: str = "") -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {**status, "conditions": [{**condition, "message": message}]}


BY_PREEMPTION = disrupted(terminated(143), "PreemptionByScheduler", "preempting")
FULL_VOLUME = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".',
}


@pytest.mark.parametrize(
    ("status", "cause", "words"),
    [
        (EVICTED, Cause.PLATFORM, "Evicted: The node was low on memory."),
        (BY_PREEMPTION, Cause.PREEMPTED, "PreemptionByScheduler: preempting; exit code 143"),
        ({"phase": "Failed", "reason": "NodeLost"}, Cause.HOST_LOST, "NodeLost"),
        (FULL_VOLUME, Cause.TASK_FAILED, f"Evicted: {FULL_VOLUME['message']}"),
        (terminated(143), Cause.TASK_FAILED, "exit code 143"),
    ],
)
def test_a_pod_that_kubernetes_ended_says_why(
    status: dict[str, Any], cause: Cause, words: str
) -> None:
    told = running()
    told.pod("worker/0", status)
    assert told.end[1] == f"worker/0 on n1 failed: {words}"
    told.all_are_gone()
    told.pass_secs(2)
    assert told.cause is cause


def test_a_deleted_job_is_named_though_its_pods_end_first() -> None:
    told = running()
    told.pod("worker/0", terminated(143), deleted=True)
    assert told.end == (143, "worker/0 on n1 failed: exit code 143; its pod was deleted")
    assert told.follower.wants_deletion(told.now)
    assert told.follower.is_disputed
    told.follower.tfjob_gone(told.now + 1)
    assert told.end == (1, "the TFJob was deleted by someone else")
    told.all_are_gone()
    told.pass_secs(2)
    assert told.cause is Cause.CANCELLED


def test_the_launchers_own_deletion_is_not_somebodys() -> None:
    told = running()
    told.pod("worker/0", terminated(3))
    told.follower.asks_for_deletion()
    told.follower.tfjob_gone(told.now)
    told.follower.saw_tfjob(TFJobState(deleted=True), told.now)
    told.pod("master/0", terminated(143), deleted=True)
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")


def test_a_pod_that_somebody_deleted_is_not_a_task_that_failed() -> None:
    told = running()
    told.pod("worker/0", terminated(143), deleted=True)
    told.all_are_gone()
    told.pass_secs(2)
    assert told.end == (143, "worker/0 on n1 failed: exit code 143; its pod was deleted")
    assert told.cause is Cause.PLATFORM


def test_a_ps_out_of_memory_is_named_though_a_worker_reports_first() -> None:
    told = running()
    told.pod("worker/0", terminated(1))
    told.follower.asks_for_deletion()
    told.follower.deleted(told.now)
    told.now += 1
    told.pod("ps/0", terminated(137, "OOMKilled"), deleted=True)
    code, reason = told.end
    assert code == 137
    assert reason.startswith("ps/0 on n1 failed: exit code 137, OOMKilled")


def test_a_worker_that_fails_because_of_a_drained_ps_is_not_the_cause() -> None:
    told = running()
    told.pod("ps/0", disrupted(RUNNING, "EvictionByEvictionAPI", "evicting"), deleted=True)
    assert told.follower.verdict is None
    told.pod("worker/0", terminated(1))
    assert told.end == (1, "ps/0 on n1 failed: EvictionByEvictionAPI: evicting")


def test_a_suspended_job_ends_by_that_and_not_by_its_pods() -> None:
    told = Told()
    told.follower.saw_tfjob(TFJobState(suspended=True), told.now)
    assert told.follower.verdict is None  # a queue may hold a job back before its start
    told.all_run()
    told.pod("worker/0", terminated(143), deleted=True)
    told.follower.saw_tfjob(TFJobState(suspended=True), told.now)
    assert told.end == (1, "the TFJob was suspended by someone else")


def test_a_pod_that_is_gone_unseen_does_not_run_for_ever() -> None:
    told = running()
    told.gone("worker/0")
    assert told.follower.states["worker/0"].status == "restarting"
    told.pass_secs(3)
    assert told.follower.verdict is None
    assert told.pass_secs(1) == ["worker/0 on n1 failed: its pod was lost; stopping the others"]
    assert told.end == (1, "worker/0 on n1 failed: its pod was lost")


def test_a_pod_that_is_gone_and_replaced_counts_as_one_restart() -> None:
    told = running(restarts=1)
    told.gone("worker/0")
    assert told.pod("worker/0", RUNNING, uid="2") == [
        "worker/0 on n1: its pod was lost; restart 1 of 1"
    ]
    told.pass_secs(10)
    state = told.follower.states["worker/0"]
    assert (state.status, state.restarts, told.follower.verdict) == ("running", 1, None)


def test_a_report_about_a_pod_that_is_gone_changes_nothing() -> None:
    told = running(restarts=1)
    told.pod("worker/0", RUNNING, uid="2")
    told.pod("worker/0", terminated(1), uid="1")
    assert told.follower.states["worker/0"].status == "running"
    assert told.follower.verdict is None


def test_a_pod_that_is_not_stuck_any_more_does_not_fail_the_job() -> None:
    told = Told()
    told.pod("worker/0", PULLING)
    told.pod("worker/0", {"phase": "Pending"})
    told.pass_secs(61)
    assert told.follower.verdict is None
    told.pod("worker/0", PULLING)
    told.pass_secs(0)
    assert told.end[0] == 1


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
