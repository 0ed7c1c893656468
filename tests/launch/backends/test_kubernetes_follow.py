"""What polls show of a job, how the job ends by that, and when it is deleted."""

import io
import json
import math
import queue
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional, cast

import pytest

from launch.backends.kubernetes import run as kubernetes_run
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import TFJOB, JobObjects, Kubectl
from launch.backends.kubernetes.run import Left, Runner
from launch.backends.kubernetes.state import (
    Pod,
    Poll,
    UnreadableError,
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
PAST_DEADLINE = {
    **container_state(terminated={"exitCode": 143, "reason": "Error"}),
    "phase": "Failed",
    "reason": "DeadlineExceeded",
    "message": "Pod was active",
}
OWN_VOLUME = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".',
}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}


def disrupted(status: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {**status, "conditions": [{**condition, "message": message}]}


BY_PREEMPTION = disrupted(terminated(143), "PreemptionByScheduler", "preempting")
DRAINED = disrupted(RUNNING, "EvictionByEvictionAPI", "evicting")


@pytest.mark.parametrize(
    ("status", "state", "code", "words", "cause"),
    [
        (RUNNING, "running", None, "", Cause.TASK_FAILED),
        (container_state(waiting={"reason": "ContainerCreating"}), "waiting", None, "",
         Cause.TASK_FAILED),
        (terminated(3), "ended", 3, "exit code 3", Cause.TASK_FAILED),
        (terminated(137, "OOMKilled"), "ended", 137, "exit code 137, OOMKilled; it needs more mem",
         Cause.TASK_FAILED),
        (EVICTED, "ended", None, "Evicted: The node was low on memory.", Cause.PLATFORM),
        (UNSCHEDULABLE, "waiting", None, "Unschedulable: 0/3 nodes are available: 3 Insufficient",
         Cause.TASK_FAILED),
        (PULLING, "waiting", None, 'ImagePullBackOff: image "x" not found; look at `image:` and ',
         Cause.TASK_FAILED),
        (PAST_DEADLINE, "ended", 143, "DeadlineExceeded: Pod was active; `deadline_secs:` under ",
         Cause.TIME_LIMIT),
        (BY_PREEMPTION, "ended", 143, "PreemptionByScheduler: preempting; exit code 143",
         Cause.PREEMPTED),
        (DRAINED, "running", None, "EvictionByEvictionAPI: evicting", Cause.PLATFORM),
        (OWN_VOLUME, "ended", None, "Evicted: Usage of EmptyDir volume", Cause.TASK_FAILED),
        (disrupted({}, "PreemptionByScheduler", "preempting"), "waiting", None,
         "PreemptionByScheduler: preempting", Cause.PREEMPTED),
        ({"phase": "Failed", "reason": "NodeLost"}, "ended", None, "NodeLost", Cause.HOST_LOST),
    ],
)  # fmt: skip
def test_a_pod_says_how_it_is(status: Any, state: str, code: Any, words: str, cause: Cause) -> None:
    found = read_pod(pod_status(status))
    assert (found.task, found.node) == ("worker/0", "n1")
    assert (found.state, found.code, found.cause) == (state, code, cause)
    assert found.words.startswith(words)
    assert bool(found.words) == bool(words)
    assert found.is_stuck == (status == PULLING)


@pytest.mark.parametrize(("grace", "cause"), [(30, Cause.PLATFORM), (0, Cause.TASK_FAILED)])
def test_a_pod_that_is_deleted_after_its_end_has_failed(grace: int, cause: Cause) -> None:
    pod = pod_status(terminated(137))
    deleted = "2026-01-31T09:00:00Z"
    pod["metadata"] |= {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}
    assert read_pod(pod).cause is cause


def test_what_belongs_to_no_task_and_odd_events_are_left_out() -> None:
    other = {"kind": "Pod", "metadata": {"name": "debug", "uid": "1"}}
    assert read_poll(json.dumps({"items": [other]})).pods == ()
    sound = {"involvedObject": {"name": "a", "uid": "1"}, "reason": "Why"}
    found = read_warnings(json.dumps({"items": [{}, 1, sound]}))
    assert found == {"a": "Why", "1": "Why"}


def test_a_poll_shows_the_job_and_its_pods() -> None:
    pod = {"kind": "Pod", **pod_status(RUNNING)}
    conditions = [{"type": "Failed", "status": "True", "message": "1 Worker failed"}]
    job = {"kind": "TFJob", "metadata": {}, "status": {"conditions": conditions}}
    poll = read_poll(json.dumps({"kind": "List", "items": [pod, job]}))
    assert [one.name for one in poll.pods] == ["job-worker-0"]
    assert (poll.is_deleted, poll.succeeded, poll.failed) == (False, False, "1 Worker failed")
    assert read_poll('{"kind": "List", "items": []}') == Poll(is_deleted=True)
    job["metadata"] = {"deletionTimestamp": "2026-01-31T09:00:00Z"}
    assert read_poll(json.dumps({"kind": "List", "items": [job]})).is_deleted


@pytest.mark.parametrize("printed", ["error: what", "[1]", '{"kind": "Status"}'])
def test_what_is_no_list_of_objects_is_named(printed: str) -> None:
    with pytest.raises(UnreadableError, match="kubectl get printed '"):
        read_poll(printed)


class Told:
    """A follower of a master, a worker and a ps, what the next poll shows, and the clock."""

    def __init__(self, restarts: int = 0, is_tfjob: bool = True, **limits: Any) -> None:
        self.now = 0.0
        tasks = make_job(kubernetes_cluster()).tasks
        limits_of_job = Limits(**limits)
        self.follower = Follower("job", tasks, limits_of_job, restarts, self.now, is_tfjob=is_tfjob)
        self.job: dict[str, Any] = {}
        self.pods: dict[str, Pod] = {}

    def pod(
        self, task: str, status: dict[str, Any], uid: str = "1", deleted: bool = False
    ) -> list[str]:
        """Changes a task's pod, and polls."""
        self.change(task, status, uid, deleted)
        return self.poll()

    def change(self, task: str, status: Any, uid: str = "1", deleted: bool = False) -> None:
        """Changes a task's pod."""
        kind, _, index = task.partition("/")
        pod = pod_status(status, (kind, int(index)), f"{task}-{uid}")
        if deleted:
            pod["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        self.pods[task] = read_pod(pod)

    def poll(self, **job: Any) -> list[str]:
        """Polls; `job` changes the state of the TFJob before."""
        self.job = job or self.job
        found = Poll(tuple(self.pods.values()), **self.job)
        return self.follower.saw(found, self.now, self.now)

    def gone(self, task: str) -> list[str]:
        del self.pods[task]
        return self.poll()

    def all_run(self) -> None:
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, RUNNING)

    def pass_secs(self, secs: float) -> list[str]:
        self.now += secs
        return self.follower.tick(self.now)

    def all_are_gone(self) -> None:
        """The launcher deletes the TFJob, and all pods end by that."""
        self.follower.deletes(self.now)
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, terminated(143), deleted=True)
        self.pods = {}
        self.now += 2
        self.poll(is_deleted=True)
        self.follower.tick(self.now)

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
    assert told.follower.outcome is None
    told.all_are_gone()
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


def test_a_pod_whose_deadline_is_over_is_not_made_anew() -> None:
    told = running(restarts=5)
    told.pod("worker/0", PAST_DEADLINE)
    assert told.end[0] == 124
    assert told.end[1].startswith("worker/0 on n1 failed: DeadlineExceeded: Pod was active")
    assert told.cause is Cause.TIME_LIMIT


def test_a_deadline_of_the_job_is_the_cause_though_its_pods_end_first() -> None:
    told = running()
    told.change("worker/0", terminated(143), deleted=True)
    words = "Job cifar10 has failed because it was active longer than specified deadline"
    told.poll(failed=words)
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


@pytest.mark.parametrize("about", ["job", "job-master-0", "uid of the pod"])
def test_a_warning_says_why_a_task_waits(about: str) -> None:
    told = Told(start_secs=100)
    involved = {"name": "the name of the pod", "uid": about}
    if about.startswith("job"):
        involved = {"name": about}
    else:
        waits = container_state(waiting={"reason": "ContainerCreating"})
        told.pods["master/0"] = read_pod(pod_status(waits, ("master", 0), about))
        told.poll()
    others = {"involvedObject": {"name": "other"}, "message": "m"}
    warning = {"involvedObject": involved, "reason": "Failed", "message": "exceeded quota"}
    found = read_warnings(json.dumps({"items": [others, warning]}))
    assert told.follower.warned(found)[0] == "master/0 waits: Failed: exceeded quota"
    told.poll()
    assert told.follower.warned(found) == []
    told.pass_secs(101)
    assert "master/0 waits: Failed: exceeded quota" in told.end[1]


def test_a_failed_job_waits_for_word_of_the_pod_that_has() -> None:
    told = running()
    told.poll(failed="1 Worker replica(s) failed")
    assert told.follower.verdict is None
    told.poll()
    assert told.end == (1, "the TFJob has failed: 1 Worker replica(s) failed")


def test_pods_that_do_not_end_are_named() -> None:
    told = running(stop_secs=10)
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.follower.deletes(told.now)
    told.gone("master/0")
    assert told.pass_secs(39) == []
    assert told.pass_secs(2) == ["worker/0, ps/0: end not confirmed; run `clean`"]
    assert told.follower.outcome is not None


def test_only_a_poll_after_the_deletion_shows_that_all_have_ended() -> None:
    told = running()
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.now += 5
    told.follower.deletes(told.now)
    for asked, is_over in ((told.now - 1, False), (told.now + 1, True)):
        told.follower.saw(Poll(), asked, told.now)
        told.pass_secs(1)
        assert (told.follower.outcome is not None) == is_over


def test_a_task_that_fails_while_it_is_deleted_for_the_user_has_ended() -> None:
    told = running()
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.follower.deletes(told.now)
    assert told.pod("worker/0", terminated(1), deleted=True) == []
    assert told.follower.states["worker/0"].status == "ended"


# Whose fault it is.


def test_a_pod_that_kubernetes_ended_is_the_cause_of_the_end() -> None:
    told = running()
    told.pod("worker/0", BY_PREEMPTION)
    told.all_are_gone()
    reason = "worker/0 on n1 failed: PreemptionByScheduler: preempting; exit code 143"
    assert told.end == (143, reason)
    assert told.cause is Cause.PREEMPTED


def test_a_deleted_job_is_named_though_its_pods_end_by_that() -> None:
    told = running()
    told.change("worker/0", terminated(143), deleted=True)
    told.poll(is_deleted=True)
    assert told.end == (1, "the job was deleted by someone else")
    told.all_are_gone()
    assert told.cause is Cause.CANCELLED


def test_the_launchers_own_deletion_is_not_somebodys() -> None:
    told = running()
    told.pod("worker/0", terminated(3))
    told.all_are_gone()
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")


def test_a_task_that_failed_explains_the_pods_that_the_operator_deletes_for_it() -> None:
    told = running()
    told.change("master/0", terminated(143), deleted=True)
    told.change("worker/0", terminated(3))
    told.poll(failed="1 Worker replica(s) failed")
    told.poll()
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")


def test_a_pod_that_somebody_deleted_is_not_a_task_that_failed() -> None:
    told = running()
    told.pod("worker/0", terminated(143), deleted=True)
    told.all_are_gone()
    assert told.end == (143, "worker/0 on n1 failed: its pod was deleted; exit code 143")
    assert told.cause is Cause.PLATFORM


def test_a_ps_out_of_memory_is_named_though_a_worker_reports_first() -> None:
    told = running()
    told.pod("worker/0", terminated(1))
    told.follower.deletes(told.now)
    told.now += 1
    told.pod("ps/0", terminated(137, "OOMKilled"), deleted=True)
    code, reason = told.end
    assert code == 137
    assert reason.startswith("ps/0 on n1 failed: exit code 137, OOMKilled")


def test_a_worker_that_fails_because_of_a_drained_ps_is_not_the_cause() -> None:
    told = running()
    told.pod("ps/0", DRAINED, deleted=True)
    assert told.follower.verdict is None
    told.pod("worker/0", terminated(1))
    assert told.end == (1, "ps/0 on n1 failed: EvictionByEvictionAPI: evicting")


def test_a_pod_that_is_gone_unseen_fails_the_job() -> None:
    told = running()
    assert told.gone("worker/0") == ["worker/0 on n1 failed: its pod was lost; stopping the others"]
    assert told.cause is Cause.HOST_LOST


def test_pods_that_are_removed_after_a_success_have_not_failed() -> None:
    told = running()
    del told.pods["worker/0"], told.pods["master/0"]
    told.poll(succeeded=True)
    assert told.end == (0, "master/0 is done")


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


class Cluster(JobObjects):
    """The objects of a job, whose deletion gets the answer that a test chooses."""

    def __init__(self) -> None:
        kubectl = Kubectl(None, None)
        kubectl.command = lambda *words: ["true"]  # type: ignore[method-assign]
        super().__init__(kubectl, TFJOB, "job")
        self.error: Optional[HostError] = None
        self.pods: dict[str, Pod] = {}
        self.num_asked = 0

    def poll(self) -> Poll:
        if self.error is not None:
            raise self.error
        return Poll(tuple(self.pods.values()))

    def delete(self) -> None:
        self.num_asked += 1
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
        self.cluster, self.loop, self.now = Cluster(), Loop(), 1000.0
        tasks = make_job(kubernetes_cluster()).tasks
        self.follower = Follower("job", tasks, Limits(), 0, self.now)
        loop, secret = cast("RunLoop[Any]", self.loop), "first line\nthe second line\nlast\n"
        create = partial(self.cluster.create, {}, [])
        self.runner = Runner(self.cluster, create, self.follower, loop, [secret], {})
        for task in ("master", "worker", "ps"):
            self.cluster.pods[task] = read_pod(pod_status(RUNNING, (task, 0), task))
        self.poll()

    def poll(self, task: str = "", status: Any = None) -> None:
        """Takes a poll, after the change of a task's pod."""
        if task:
            self.cluster.pods[task] = read_pod(pod_status(status, (task, 0), task))
        self.runner._polled = self.runner._warnings_due = math.inf  # no further one
        self.runner._poll(self.now)

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


def test_a_job_is_deleted_after_the_log_of_the_task_that_failed_is_read(rig: Rig) -> None:
    for _ in range(3):
        rig.hear()  # the connections end
    rig.poll("worker", terminated(3))
    rig.tick()
    assert rig.cluster.num_asked == 0
    rig.hear()
    rig.hear()
    rig.hear()
    rig.tick()
    assert rig.cluster.num_asked == 1


def test_a_job_is_deleted_though_a_log_cannot_be_read_and_tried_again_if_that_fails(
    rig: Rig,
) -> None:
    rig.poll("worker", terminated(3))
    rig.cluster.error = DOWN
    for secs in (0.0, 4.9, 0.2, 1.0, 4.0):
        rig.tick(secs)
    assert rig.cluster.num_asked == 2
    again = f"{DOWN}; trying again to delete TFJob job"
    assert rig.loop.notes == ["worker/0 on n1 failed: exit code 3; stopping the others", again]


def test_an_outage_is_told_once_and_a_refusal_from_the_start_ends_the_run(rig: Rig) -> None:
    refused = HostError("kubectl: Error from server (Forbidden): pods is forbidden: no")
    for error in (DOWN, DOWN, refused, None, DOWN):
        rig.cluster.error = error
        rig.poll()
    goes_on = "the job goes on, trying again"
    assert rig.loop.notes == [f"{one}; {goes_on}" for one in (DOWN, refused, DOWN)]
    rig.runner._has_polled, rig.cluster.error = False, refused
    with pytest.raises(HostError, match="pods is forbidden: no"):
        rig.poll()


def test_sighup_leaves_a_job_but_not_one_that_ends(rig: Rig) -> None:
    with pytest.raises(Left):
        rig.runner.stop(signal.SIGHUP, 1)
    rig.runner.stop(signal.SIGINT, 2)
    rig.runner.stop(signal.SIGHUP, 3)
    assert rig.loop.notes[-1] == "SIGHUP: the job is ending already"
    rig.tick()
    assert rig.cluster.num_asked == 1


def test_each_line_of_a_secret_is_masked(rig: Rig) -> None:
    for line in ("first line", "a second line", "the second line!", "last"):
        rig.runner._take_line(rig.cluster.pods["worker"], line)
    assert rig.loop.lines == ["***", "a second line", "***!", "last"]


@pytest.mark.parametrize(
    ("error", "is_left"), [(RuntimeError("a mistake"), True), (HostError("refused"), False)]
)
def test_an_error_of_the_launcher_leaves_the_job_and_one_of_the_cluster_deletes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_left: bool
) -> None:
    created = Cluster()
    created._owner = {"uid": "1"}
    created.create = lambda *_: None  # type: ignore[method-assign]

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(kubernetes_run, "connect", lambda settings: Kubectl("lab", "vision"))
    monkeypatch.setattr(kubernetes_run, "choose_form", lambda *_: TFJOB)
    monkeypatch.setattr(kubernetes_run, "JobObjects", lambda *_: created)
    monkeypatch.setattr(Runner, "tick", fail)
    job, screen = make_job(kubernetes_cluster()), io.StringIO()
    folder, display = RunFolder.create(tmp_path, job), Display(screen, live=False)
    with pytest.raises(type(error)):
        kubernetes_run.run(job, folder, display)
    display.close()
    assert created.num_asked == (0 if is_left else 1)
    said = f"goes on; to end it: clean --run {folder.run_id}"
    assert (said in screen.getvalue()) == is_left
