"""What polls show of a job, how the job ends by that, and when it is deleted."""

import contextlib
import io
import json
import queue
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional, cast

import pytest

from launch.backends.kubernetes import run as kubernetes_run
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import Kubectl, UnreadableError
from launch.backends.kubernetes.objects import TFJOB, Objects
from launch.backends.kubernetes.run import Poller, Runner
from launch.backends.kubernetes.state import (
    JobState,
    Poll,
    read_job,
    read_pod,
    read_poll,
    read_warnings,
)
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


def test_a_poll_shows_the_job_and_its_pods_and_leaves_out_what_it_cannot_read() -> None:
    pod = {"kind": "Pod", **pod_status(RUNNING)}
    nameless = {"kind": "Pod", **pod_status(RUNNING)}
    nameless["metadata"] = {**nameless["metadata"], "uid": ""}
    job = {"kind": "TFJob", "metadata": {"name": "job"}, "spec": {"runPolicy": {"suspend": True}}}
    others = [{"kind": "Pod", "metadata": {"name": "other"}}, {"kind": "Service"}, 3]
    listed = {"kind": "List", "items": [pod, nameless, *others, job]}
    poll = read_poll(json.dumps(listed), "TFJob", "job")
    assert poll.job == JobState(suspended=True)
    assert [one.name for one in poll.pods] == ["job-worker-0"]
    assert poll.unreadable == ("kubectl get pods printed a pod without uid",)
    assert read_poll('{"kind": "List", "items": []}', "TFJob", "job") == Poll(None)


@pytest.mark.parametrize("printed", ["error: what", "[1]", '{"kind": "Status"}'])
def test_what_is_no_list_of_objects_is_named(printed: str) -> None:
    with pytest.raises(UnreadableError, match="kubectl get printed '"):
        read_poll(printed, "TFJob", "job")


class Told:
    """A follower of a master, a worker and a ps, what the next poll shows, and the clock."""

    def __init__(self, restarts: int = 0, is_tfjob: bool = True, **limits: Any) -> None:
        self.now = 0.0
        tasks = make_job(kubernetes_cluster()).tasks
        self.follower = Follower(tasks, Limits(**limits), restarts, self.now, is_tfjob=is_tfjob)
        self.job: Optional[JobState] = JobState()
        self.pods: dict[str, Any] = {}

    def pod(
        self, task: str, status: dict[str, Any], uid: str = "1", deleted: bool = False
    ) -> list[str]:
        """Changes a task's pod, and polls."""
        kind, _, index = task.partition("/")
        pod = pod_status(status, (kind, int(index)), f"{task}-{uid}")
        if deleted:
            pod["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        self.pods[task] = read_pod(pod)
        return self.poll()

    def poll(self, **job: Any) -> list[str]:
        """Polls; `job` changes the state of the TFJob before."""
        if job:
            self.job = JobState(**job)
        return self.follower.saw(Poll(self.job, tuple(self.pods.values())), self.now, self.now)

    def gone(self, task: str) -> list[str]:
        del self.pods[task]
        return self.poll()

    def all_run(self) -> None:
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, RUNNING)

    def pass_secs(self, secs: float) -> list[str]:
        self.now += secs
        return self.follower.tick(self.now)

    def delete(self) -> None:
        """The launcher deletes the TFJob."""
        self.follower.asks_for_deletion()
        self.follower.deleted(self.now)
        self.job = None

    def all_are_gone(self) -> None:
        """The launcher deletes the TFJob, and all pods end by that."""
        self.delete()
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, terminated(143), deleted=True)
        self.pods = {}
        self.now += 1
        self.poll()

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
    told.delete()
    told.now += 1
    told.poll()
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


def test_the_launcher_restarts_a_task_of_jobs_after_a_wait_that_grows() -> None:
    told = Told(restarts=2, is_tfjob=False)
    told.all_run()
    assert told.pod("worker/0", terminated(1)) == [
        "worker/0 on n1: exit code 1; restart 1 of 2 in 1 s"
    ]
    assert told.follower.due(0.9) == []
    assert told.follower.due(1.0) == ["worker/0"]
    told.follower.restarts_later("worker/0", 1.0)  # the cluster did not answer
    assert (told.follower.due(5.9), told.follower.due(6.0)) == ([], ["worker/0"])
    told.follower.restarted("worker/0")
    assert told.poll() == told.follower.due(9.0) == []  # the earlier pod may still be there
    told.now = 10.0
    told.pod("worker/0", RUNNING, uid="2")
    assert told.pod("worker/0", terminated(137), uid="2") == [
        "worker/0 on n1: exit code 137; restart 2 of 2 in 2 s"
    ]
    told.follower.restarted("worker/0")
    told.pod("worker/0", terminated(1), uid="3")
    assert told.end == (1, "worker/0 on n1 failed: exit code 1, after 2 restarts")
    assert told.follower.due(99.0) == []


def test_a_mistake_of_the_user_is_not_restarted() -> None:
    told = Told(restarts=2, is_tfjob=False)
    told.all_run()
    told.pod("worker/0", terminated(2))
    assert told.end == (2, "worker/0 on n1 failed: exit code 2")


def test_the_deletion_of_jobs_by_others_is_named() -> None:
    told = Told(is_tfjob=False)
    told.all_run()
    told.job = None
    told.poll()
    assert told.end == (1, "the job was deleted by someone else")


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
    told.job = read_job({"status": {"conditions": [failed]}})
    told.poll()
    assert told.end == (124, f"{words}; `deadline_secs:` under `kubernetes:` is the limit")
    assert told.cause is Cause.TIME_LIMIT


def test_an_image_that_does_not_come_fails_after_a_while() -> None:
    told = Told()
    assert "worker/0 waits: ImagePullBackOff" in told.pod("worker/0", PULLING)[0]
    told.now = 59
    assert told.poll() == []
    assert told.follower.verdict is None
    told.now = 61
    told.poll()
    assert told.end[0] == 1
    assert "worker/0 on n1 failed: ImagePullBackOff" in told.end[1]


def test_a_pod_that_is_not_stuck_any_more_does_not_fail_the_job() -> None:
    told = Told()
    told.pod("worker/0", PULLING)
    told.pod("worker/0", {"phase": "Pending"})
    told.now = 61
    told.pod("worker/0", PULLING)
    assert told.follower.verdict is None


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
    about_others = {"involvedObject": {"name": "other"}, "message": "m"}
    warning = {
        "involvedObject": {"name": "job"},
        "reason": "FailedCreatePod",
        "message": "forbidden: exceeded quota",
    }
    found = read_warnings(json.dumps({"items": [about_others, warning]}), ["job", "job-worker-0"])
    notes = told.follower.warned(found, "job")
    assert notes[0] == "master/0 waits: FailedCreatePod: forbidden: exceeded quota"
    assert told.follower.warned(found, "job") == []
    told.pass_secs(101)
    assert "master/0 waits: FailedCreatePod: forbidden: exceeded quota" in told.end[1]


def test_a_failed_job_waits_for_word_of_the_pod_that_has() -> None:
    told = running()
    told.poll(failed="1 Worker replica(s) failed")
    told.pass_secs(2)
    assert told.follower.verdict is None
    told.pass_secs(2)
    assert told.end == (1, "the TFJob has failed: 1 Worker replica(s) failed")


def test_pods_that_do_not_end_are_named() -> None:
    told = running(stop_secs=10)
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.delete()
    told.gone("master/0")
    assert told.pass_secs(39) == []
    assert told.pass_secs(2) == ["worker/0, ps/0: end not confirmed; run `clean`"]
    assert told.follower.outcome is not None


def test_only_a_poll_after_the_deletion_shows_that_all_have_ended() -> None:
    told = running()
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.now += 5
    told.delete()
    told.follower.saw(Poll(JobState()), told.now - 1, told.now)
    told.pass_secs(1)
    assert told.follower.outcome is None
    told.follower.saw(Poll(None), told.now, told.now)
    told.pass_secs(0)
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


def test_a_deleted_job_is_named_though_its_pods_end_by_that() -> None:
    told = running()
    told.job = None
    told.pod("worker/0", terminated(143), deleted=True)
    assert told.end == (1, "the TFJob was deleted by someone else")
    assert not told.follower.wants_deletion(told.now)
    told.all_are_gone()
    told.pass_secs(2)
    assert told.cause is Cause.CANCELLED


def test_the_launchers_own_deletion_is_not_somebodys() -> None:
    told = running()
    told.pod("worker/0", terminated(3))
    told.delete()
    told.poll()
    told.pod("master/0", terminated(143), deleted=True)
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")


def test_a_task_that_failed_explains_the_pods_that_the_operator_deletes_for_it() -> None:
    told = running()
    for task, code, deleted in (("master", 143, True), ("worker", 3, False)):
        pod = pod_status(terminated(code), (task, 0), f"{task}/0-1")
        if deleted:
            pod["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        told.pods[f"{task}/0"] = read_pod(pod)
    told.poll(failed="1 Worker replica(s) failed")
    told.pass_secs(2)
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
    told.delete()
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
    told.poll(suspended=True)
    assert told.follower.verdict is None  # a queue may hold a job back before its start
    told.poll(suspended=False)
    told.all_run()
    told.job = JobState(suspended=True)
    told.pod("worker/0", terminated(143), deleted=True)
    assert told.end == (1, "the TFJob was suspended by someone else")


def test_a_pod_that_is_gone_unseen_fails_the_job() -> None:
    told = running()
    assert told.gone("worker/0") == ["worker/0 on n1 failed: its pod was lost; stopping the others"]
    assert told.cause is Cause.HOST_LOST


def test_pods_that_are_removed_after_a_success_have_not_failed() -> None:
    told = running()
    del told.pods["worker/0"], told.pods["master/0"]
    told.poll(succeeded=True)
    assert told.end == (0, "master/0 is done")
    assert told.follower.states["master/0"].code == 0


def test_a_pod_that_is_replaced_unseen_counts_as_one_restart() -> None:
    told = running(restarts=1)
    assert told.pod("worker/0", RUNNING, uid="2") == [
        "worker/0 on n1: its pod was lost; restart 1 of 1"
    ]
    assert told.poll() == []
    told.pass_secs(10)
    state = told.follower.states["worker/0"]
    assert (state.status, state.restarts, told.follower.verdict) == ("running", 1, None)


DOWN = HostError("the cluster does not answer")


class Cluster:
    """The objects of a job, whose deletion gets the answer that a test chooses."""

    name, form = "job", TFJOB

    def __init__(self) -> None:
        self.error: Optional[HostError] = None
        self.exists = True
        self.asked: list[str] = []

    def delete(self) -> None:
        self.asked.append("delete")
        if self.error is not None:
            raise self.error


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
        self.cluster, self.loop, self.now = Cluster(), Loop(), 1000.0
        self.follower = Follower(make_job(kubernetes_cluster()).tasks, Limits(), 0, self.now)
        self.runner = Runner(
            kubectl,
            cast(Objects, self.cluster),
            self.follower,
            cast("RunLoop[Any]", self.loop),
            ["first line\nthe second line\nlast\n"],
            {},
        )
        self.pods: dict[str, Any] = {}
        for task in ("master", "worker", "ps"):
            self.pods[task] = read_pod(pod_status(RUNNING, (task, 0), task))
        self.poll()

    def poll(self, task: str = "", status: Any = None, job: Optional[JobState] = None) -> None:
        """Takes a poll, after the change of a task's pod."""
        if task:
            self.pods[task] = read_pod(pod_status(status, (task, 0), task))
        found = Poll(job or JobState(), tuple(self.pods.values()))
        self.runner._take_poll(found, self.now)

    def tick(self, secs: float = 0.0) -> None:
        self.now += secs
        self.runner.tick(self.now)

    def hear(self) -> None:
        """Waits for what a thread has to say, and takes it."""
        self.runner.handle(self.loop.events.get(timeout=30))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.runner.close()


def test_the_leads_log_is_waited_for_though_the_job_is_shown_as_done_before_its_pods(
    rig: Rig,
) -> None:
    rig.poll(job=JobState(succeeded=True))
    assert rig.runner.has_lines_to_come()
    while rig.runner.has_lines_to_come():
        rig.hear()
        rig.poll("master", terminated(0), JobState(succeeded=True))


def test_a_job_is_deleted_after_the_log_of_the_task_that_failed_is_read(rig: Rig) -> None:
    for _ in range(3):
        rig.hear()  # the connections end
    rig.poll("worker", terminated(3))
    rig.tick()
    assert rig.cluster.asked == []
    rig.hear()
    rig.hear()
    rig.hear()
    rig.tick()
    assert rig.cluster.asked == ["delete"]


def test_a_job_is_deleted_though_a_log_cannot_be_read_and_tried_again_if_that_fails(
    rig: Rig,
) -> None:
    rig.cluster.error = DOWN
    rig.poll("worker", terminated(3))
    for secs in (0.0, 4.9, 0.2, 1.0, 4.0):
        rig.tick(secs)
    assert rig.cluster.asked == ["delete", "delete"]
    again = f"{DOWN}; trying again to delete TFJob job"
    assert rig.loop.notes == ["worker/0 on n1 failed: exit code 3; stopping the others", again]


def test_an_outage_is_told_once_and_a_refusal_from_the_start_ends_the_run(rig: Rig) -> None:
    refused = HostError("kubectl: Error from server (Forbidden): pods is forbidden: no")
    for error in (DOWN, DOWN, refused):
        rig.runner._take_poll(error, rig.now)
    rig.poll()
    rig.runner._take_poll(DOWN, rig.now)
    goes_on = "the job goes on, trying again"
    assert rig.loop.notes == [f"{one}; {goes_on}" for one in (DOWN, refused, DOWN)]
    rig.runner._has_polled = False
    with pytest.raises(HostError, match="pods is forbidden: no"):
        rig.runner._take_poll(refused, rig.now)


def test_a_poller_polls_until_it_is_closed_and_asks_for_warnings_while_tasks_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {"kind": "List", "items": [{"kind": "TFJob", "metadata": {"name": "job"}}]}
    warning = {"involvedObject": {"name": "job-worker-0"}, "message": "no volume"}
    (tmp_path / "pods").write_text(json.dumps(listed))
    (tmp_path / "events").write_text(json.dumps({"items": [warning]}))
    script = f'case "$*" in *events*) cat {tmp_path}/events ;; *) cat {tmp_path}/pods ;; esac'
    (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(kubernetes_run, "_WARNINGS_SECS", 0.1)
    events: queue.Queue[Any] = queue.Queue()
    poller = Poller(Kubectl(None, None), TFJOB, "job", events.put)
    poller.secs, poller.waiting = 0.05, ["worker/0"]
    polls: list[Any] = []
    warnings: list[Any] = []
    poller.start(lambda poll, asked: polls.append(poll), warnings.append)
    while not warnings or len(polls) < 3:
        events.get(timeout=30)()
    poller.close()
    assert polls[0] == Poll(JobState())
    assert [one.words for one in warnings[0]] == ["no volume"]


def test_each_line_of_a_secret_is_masked(rig: Rig) -> None:
    for line in ("first line", "a second line", "the second line!", "last"):
        rig.runner._take_line(rig.pods["worker"], line)
    assert rig.loop.lines == ["***", "a second line", "***!", "last"]


def test_a_pod_of_a_task_that_the_job_does_not_have_is_left_out_and_named_once(rig: Rig) -> None:
    rig.pods["new"] = read_pod(pod_status(RUNNING, ("worker", 1), "new"))
    for _ in range(2):
        rig.poll()
    assert rig.loop.notes == ["worker/1: this job has no such task; its pod is left out"]
    assert "new" not in rig.runner._logs._logs


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

    class Created(Cluster):
        def create(self) -> None:
            if not exists:
                raise error

        def remove(self, run_id: str) -> None:
            removed.append(run_id)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(kubernetes_run, "connect", lambda settings: Kubectl(None, None))
    monkeypatch.setattr("launch.backends.kubernetes.objects.choose_form", lambda *_: TFJOB)
    created = Created()
    created.exists = exists
    monkeypatch.setattr(kubernetes_run, "Objects", lambda *_: created)
    monkeypatch.setattr(Runner, "tick", fail)
    job, screen = make_job(kubernetes_cluster()), io.StringIO()
    folder = RunFolder.create(tmp_path, job)
    with contextlib.closing(Display(screen, live=False)) as display, pytest.raises(type(error)):
        kubernetes_run.run(job, folder, display)
    assert removed == ([] if is_left else [folder.run_id])
    name = folder.record()["kubernetes"]["name"]
    said = f"TFJob {name} goes on; to end it: clean --run {folder.run_id}"
    assert (said in screen.getvalue()) == is_left
