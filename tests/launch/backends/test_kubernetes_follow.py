"""What a job's pods and its TFJob say, and how the job ends by that."""

from typing import Any, Optional

import pytest

from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.objects import TFJobState, read_tfjob, read_warning
from launch.backends.kubernetes.pods import read_pod
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.record.outcome import Cause
from tests.launch.backends.samples import (
    RUNNING,
    container_state,
    kubernetes_cluster,
    pod_status,
    terminated,
)

PULLING = container_state(waiting={"reason": "ImagePullBackOff", "message": 'image "x" not found'})
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ],
}
UNWRITABLE = "/data/output (volume nfs:/results) is not writable for uid 1000, gid 1000: ..."
PAST_DEADLINE = {
    **container_state(terminated={"exitCode": 143, "reason": "Error"}),
    "phase": "Failed",
    "reason": "DeadlineExceeded",
    "message": "Pod was active on the node longer than the specified deadline",
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
        (terminated(0, "Completed"), "ended", 0, "exit code 0"),
        (terminated(3), "ended", 3, "exit code 3"),
        (
            terminated(137, "OOMKilled"),
            "ended",
            137,
            "exit code 137, OOMKilled; it needs more memory than `memory:` or `ps_memory:` allows",
        ),
        (EVICTED, "ended", None, "Evicted: The node was low on memory."),
        (
            UNSCHEDULABLE,
            "waiting",
            None,
            "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            PULLING,
            "waiting",
            None,
            'ImagePullBackOff: image "x" not found; look at `image:` and `image_pull_secrets:`',
        ),
        ({"phase": "Pending"}, "waiting", None, ""),
        (checked(running={}), "waiting", None, "PodInitializing"),
        (
            checked(waiting={"reason": "ErrImagePull", "message": "no"}),
            "waiting",
            None,
            "ErrImagePull: no; look at `image:` and `image_pull_secrets:`",
        ),
        (
            checked(terminated={"exitCode": 2, "reason": "Error", "message": f"{UNWRITABLE}\n"}),
            "ended",
            2,
            UNWRITABLE,
        ),
        (checked(terminated={"exitCode": 137}), "ended", 137, "check-folders: exit code 137"),
        (
            PAST_DEADLINE,
            "ended",
            143,
            "DeadlineExceeded: Pod was active on the node longer than the specified deadline; "
            "`deadline_secs:` under `kubernetes:` is the limit; exit code 143",
        ),
    ],
)
def test_a_pod_says_how_it_is(status: Any, state: str, code: Any, words: str) -> None:
    found = read_pod(pod_status(status))
    assert found is not None
    assert (found.task, found.node) == ("worker/0", "n1")
    assert (found.state, found.code, found.words) == (state, code, words)


def test_a_pod_of_another_kind_is_left_alone() -> None:
    assert read_pod({"metadata": {"name": "x", "uid": "1"}}) is None


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
        """The cause of the outcome."""
        assert self.follower.outcome is not None
        return self.follower.outcome.cause

    @property
    def end(self) -> tuple[int, str]:
        assert self.follower.verdict is not None
        return self.follower.verdict.exit_code, self.follower.verdict.reason


def test_the_job_is_over_with_its_master() -> None:
    told = Told(grace_secs=30)
    told.all_run()
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


def test_those_who_stay_are_deleted_after_the_grace() -> None:
    told = Told(grace_secs=30)
    told.all_run()
    told.pod("master/0", terminated(0, "Completed"))
    told.pass_secs(31)
    assert told.follower.wants_deletion(told.now)


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (terminated(3), (3, "worker/0 on n1 failed: exit code 3")),
        (terminated(139), (139, "worker/0 on n1 failed: exit code 139")),
        (EVICTED, (1, "worker/0 on n1 failed: Evicted: The node was low on memory.")),
    ],
)
def test_the_first_failure_is_the_jobs(status: Any, end: tuple[int, str]) -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", status)
    told.pod("master/0", terminated(1))
    assert told.end == end
    assert told.follower.wants_deletion(told.now)


def test_a_pod_that_is_made_anew_is_counted() -> None:
    told = Told(restarts=1)
    told.all_run()
    assert told.pod("worker/0", EVICTED) == [
        "worker/0 on n1: Evicted: The node was low on memory.; restart 1 of 1"
    ]
    told.pod("worker/0", RUNNING, uid="2")
    assert told.follower.states["worker/0"].status == "running"
    told.pod("worker/0", terminated(137), uid="2")
    assert told.end == (137, "worker/0 on n1 failed: exit code 137, after 1 restarts")


def test_an_error_is_not_made_anew() -> None:
    told = Told(restarts=5)
    told.all_run()
    told.pod("worker/0", terminated(1))
    assert told.end == (1, "worker/0 on n1 failed: exit code 1")


def test_a_folder_that_cannot_be_used_is_the_cause_and_no_pod_is_made_anew() -> None:
    told = Told(restarts=5)
    told.pod("worker/0", checked(terminated={"exitCode": 2, "message": UNWRITABLE}))
    assert told.end == (2, f"worker/0 on n1 failed: {UNWRITABLE}")
    assert told.follower.wants_deletion(told.now)


def test_a_pod_whose_deadline_is_over_is_not_made_anew() -> None:
    told = Told(restarts=5)
    told.all_run()
    told.pod("worker/0", PAST_DEADLINE)
    assert told.end[0] == 124
    assert told.end[1].startswith("worker/0 on n1 failed: DeadlineExceeded: Pod was active")
    assert told.follower.verdict is not None
    assert told.follower.verdict.cause is Cause.TIME_LIMIT


def test_a_deadline_of_the_job_is_the_cause_though_its_pods_end_first() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(143), deleted=True)
    words = "Job cifar10 has failed because it was active longer than specified deadline"
    failed = {"type": "Failed", "status": "True", "message": words}
    told.follower.saw_tfjob(read_tfjob({"status": {"conditions": [failed]}}), told.now)
    assert told.end == (124, f"{words}; `deadline_secs:` under `kubernetes:` is the limit")
    assert told.follower.verdict is not None
    assert told.follower.verdict.cause is Cause.TIME_LIMIT


def test_a_pod_whose_end_went_unseen_was_lost() -> None:
    told = Told(restarts=1)
    told.all_run()
    assert told.pod("worker/0", RUNNING, uid="2") == [
        "worker/0 on n1: its pod was lost; restart 1 of 1"
    ]
    assert told.follower.verdict is None


def test_an_image_that_does_not_come_fails_after_a_while() -> None:
    told = Told()
    assert "worker/0 waits: ImagePullBackOff" in told.pod("worker/0", PULLING)[0]
    told.pass_secs(59)
    assert told.follower.verdict is None
    told.pass_secs(2)
    assert told.end[0] == 1
    assert "worker/0 on n1 failed: ImagePullBackOff" in told.end[1]


def test_an_image_that_does_not_come_counts_more_than_the_limit() -> None:
    told = Told(start_secs=4)
    told.pass_secs(3)
    told.pod("worker/0", PULLING)
    told.pass_secs(1.5)
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


def test_a_job_that_others_delete_has_failed() -> None:
    told = Told()
    told.all_run()
    told.follower.tfjob_gone(told.now)
    assert told.end == (1, "the TFJob was deleted by someone else")
    for task in ("master/0", "worker/0", "ps/0"):
        told.gone(task)
    told.pass_secs(2)
    assert told.cause is Cause.CANCELLED


def test_a_failed_job_waits_for_word_of_the_pod_that_has() -> None:
    told = Told()
    told.all_run()
    condition = {"type": "Failed", "status": "True", "message": "1 Worker replica(s) failed"}
    told.follower.saw_tfjob(read_tfjob({"status": {"conditions": [condition]}}), told.now)
    told.pass_secs(2)
    assert told.follower.verdict is None
    told.pass_secs(2)
    assert told.end == (1, "the TFJob has failed: 1 Worker replica(s) failed")


def test_pods_that_do_not_end_are_named() -> None:
    told = Told(stop_secs=10)
    told.all_run()
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.follower.deleted(told.now)
    told.gone("master/0")
    assert told.pass_secs(39) == []
    assert told.pass_secs(2) == ["worker/0, ps/0: end not confirmed; run `clean`"]
    assert told.follower.outcome is not None


# Whose fault it is.


def disrupted(status: dict[str, Any], reason: str, message: str = "") -> dict[str, Any]:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
    }
    return {**status, "conditions": [condition]}


BY_EVICTION = disrupted(terminated(143), "EvictionByEvictionAPI", "Eviction API: evicting")
BY_PREEMPTION = disrupted(terminated(143), "PreemptionByScheduler", "preempting for a pod")
FULL_VOLUME = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".',
}


@pytest.mark.parametrize(
    ("status", "cause", "words"),
    [
        (EVICTED, Cause.PLATFORM, "Evicted: The node was low on memory."),
        (
            {**terminated(137), **EVICTED},
            Cause.PLATFORM,
            "Evicted: The node was low on memory.; exit code 137",
        ),
        (
            BY_EVICTION,
            Cause.PLATFORM,
            "EvictionByEvictionAPI: Eviction API: evicting; exit code 143",
        ),
        (
            BY_PREEMPTION,
            Cause.PREEMPTED,
            "PreemptionByScheduler: preempting for a pod; exit code 143",
        ),
        ({"phase": "Failed", "reason": "Preempting"}, Cause.PREEMPTED, "Preempting"),
        ({"phase": "Failed", "reason": "NodeLost"}, Cause.HOST_LOST, "NodeLost"),
        (
            disrupted({"phase": "Failed"}, "DeletionByPodGC", "node not found"),
            Cause.HOST_LOST,
            "DeletionByPodGC: node not found",
        ),
        (FULL_VOLUME, Cause.TASK_FAILED, f"Evicted: {FULL_VOLUME['message']}"),
        (terminated(143), Cause.TASK_FAILED, "exit code 143"),
    ],
)
def test_a_pod_that_kubernetes_ended_says_why(
    status: dict[str, Any], cause: Cause, words: str
) -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", status)
    assert told.end[1] == f"worker/0 on n1 failed: {words}"
    told.all_are_gone()
    told.pass_secs(2)
    assert told.cause is cause


def test_a_deleted_job_is_named_though_its_pods_end_first() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(143), deleted=True)
    assert told.end == (143, "worker/0 on n1 failed: exit code 143; its pod was deleted")
    assert told.follower.wants_deletion(told.now)
    assert told.follower.is_disputed
    told.follower.tfjob_gone(told.now + 1)
    assert told.end == (1, "the TFJob was deleted by someone else")
    told.all_are_gone()
    told.pass_secs(2)
    assert told.cause is Cause.CANCELLED


def test_a_job_that_waits_for_the_end_of_its_pods_to_be_deleted_is_cancelled() -> None:
    told = Told()
    told.all_run()
    job = {"kind": "TFJob", "metadata": {"deletionTimestamp": "2026-01-31T09:00:00Z"}}
    told.follower.saw_tfjob(read_tfjob(job), told.now)
    assert told.end == (1, "the TFJob was deleted by someone else")


def test_the_launchers_own_deletion_is_not_somebodys() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(3))
    told.follower.asks_for_deletion()
    told.follower.tfjob_gone(told.now)
    told.follower.saw_tfjob(TFJobState(deleted=True), told.now)
    told.pod("master/0", terminated(143), deleted=True)
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")


def test_a_pod_that_somebody_deleted_is_not_a_task_that_failed() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(143), deleted=True)
    told.all_are_gone()
    told.pass_secs(2)
    assert told.end == (143, "worker/0 on n1 failed: exit code 143; its pod was deleted")
    assert told.cause is Cause.PLATFORM


def test_a_task_whose_earlier_pod_was_deleted_can_fail_by_itself() -> None:
    told = Told(restarts=1)
    told.all_run()
    told.pod("worker/0", terminated(143), deleted=True)
    told.pod("worker/0", RUNNING, uid="2")
    told.pod("worker/0", terminated(1), uid="2")
    told.all_are_gone()
    told.gone("worker/0", uid="2")
    told.pass_secs(2)
    assert told.end == (1, "worker/0 on n1 failed: exit code 1, after 1 restarts")
    assert told.cause is Cause.TASK_FAILED


def test_a_ps_out_of_memory_is_named_though_a_worker_reports_first() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(1))
    told.follower.asks_for_deletion()
    told.follower.deleted(told.now)
    told.now += 1
    told.pod("ps/0", terminated(137, "OOMKilled"), deleted=True)
    code, reason = told.end
    assert code == 137
    assert reason.startswith("ps/0 on n1 failed: exit code 137, OOMKilled")


def test_a_worker_that_fails_because_of_a_drained_ps_is_not_the_cause() -> None:
    told = Told()
    told.all_run()
    told.pod("ps/0", disrupted(RUNNING, "EvictionByEvictionAPI", "evicting"), deleted=True)
    assert told.follower.verdict is None
    told.pod("worker/0", terminated(1))
    assert told.end == (1, "ps/0 on n1 failed: EvictionByEvictionAPI: evicting")


def test_the_outcome_waits_for_a_nearer_cause() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(1))
    told.all_are_gone()
    told.pass_secs(1)
    assert told.follower.outcome is None
    told.follower.stop("stopped by SIGINT", 130, told.now)
    told.pass_secs(0)
    assert told.end == (130, "stopped by SIGINT")
    assert told.cause is Cause.USER


def test_a_suspended_job_ends_by_that_and_not_by_its_pods() -> None:
    told = Told()
    told.follower.saw_tfjob(TFJobState(suspended=True), told.now)
    assert told.follower.verdict is None  # a queue may hold a job back before its start
    told.all_run()
    told.pod("worker/0", terminated(143), deleted=True)
    told.follower.saw_tfjob(TFJobState(suspended=True), told.now)
    assert told.end == (1, "the TFJob was suspended by someone else")


# Pods whose end was not seen.


def test_a_pod_that_is_gone_unseen_does_not_run_for_ever() -> None:
    told = Told()
    told.all_run()
    told.gone("worker/0")
    assert told.follower.states["worker/0"].status == "restarting"
    told.pass_secs(3)
    assert told.follower.verdict is None
    assert told.pass_secs(1) == ["worker/0 on n1 failed: its pod was lost; stopping the others"]
    assert told.end == (1, "worker/0 on n1 failed: its pod was lost")


def test_a_pod_that_is_gone_and_replaced_counts_as_one_restart() -> None:
    told = Told(restarts=1)
    told.all_run()
    told.gone("worker/0")
    assert told.pod("worker/0", RUNNING, uid="2") == [
        "worker/0 on n1: its pod was lost; restart 1 of 1"
    ]
    told.pass_secs(10)
    state = told.follower.states["worker/0"]
    assert (state.status, state.restarts, told.follower.verdict) == ("running", 1, None)


def test_a_pod_judged_as_lost_and_replaced_later_counts_as_one_restart() -> None:
    told = Told(restarts=1)
    told.all_run()
    told.gone("worker/0")
    assert told.pass_secs(4) == ["worker/0 on n1: its pod was lost; restart 1 of 1"]
    told.pod("worker/0", RUNNING, uid="2")
    state = told.follower.states["worker/0"]
    assert (state.status, state.restarts, told.follower.verdict) == ("running", 1, None)


def test_a_replaced_pod_that_was_preempted_unseen_says_so() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", disrupted(RUNNING, "PreemptionByScheduler"), deleted=True)
    told.pod("worker/0", {"phase": "Pending"}, uid="2")
    assert told.end == (1, "worker/0 on n1 failed: PreemptionByScheduler")
    assert told.follower.verdict is not None
    assert told.follower.verdict.cause is Cause.PREEMPTED


def test_the_success_of_a_master_whose_pod_is_gone_is_not_lost() -> None:
    told = Told(grace_secs=0)
    told.all_run()
    told.gone("master/0")
    told.follower.saw_tfjob(TFJobState(succeeded=True), told.now)
    assert told.end == (0, "master/0 is done")
    state = told.follower.states["master/0"]
    assert (state.status, state.code) == ("ended", 0)
    told.pass_secs(10)
    assert told.end == (0, "master/0 is done")


def test_a_success_that_is_seen_before_the_deletion_counts_more_than_a_lost_pod() -> None:
    told = Told(grace_secs=0)
    told.all_run()
    told.gone("master/0")
    told.pass_secs(4)
    assert told.end == (1, "master/0 on n1 failed: its pod was lost")
    told.follower.saw_tfjob(TFJobState(succeeded=True), told.now)
    assert told.end == (0, "master/0 is done")


def test_the_last_state_of_a_deleted_job_that_was_done_counts() -> None:
    told = Told()
    told.all_run()
    told.follower.saw_tfjob(TFJobState(succeeded=True), told.now)
    told.follower.tfjob_gone(told.now)
    assert told.end == (0, "master/0 is done")


def test_a_report_about_a_pod_that_is_gone_changes_nothing() -> None:
    told = Told(restarts=1)
    told.all_run()
    told.pod("worker/0", RUNNING, uid="2")
    told.pod("worker/0", terminated(1), uid="1")
    assert told.follower.states["worker/0"].status == "running"
    assert told.follower.verdict is None


def test_a_stuck_pod_that_was_replaced_does_not_fail_the_job_later() -> None:
    told = Told(restarts=1)
    told.all_run()
    told.pod("worker/0", EVICTED)
    told.pod("worker/0", PULLING, uid="2")
    told.gone("worker/0", uid="2")
    told.follower.states["worker/0"].restarts = 0
    told.pod("worker/0", {"phase": "Pending"}, uid="3")
    told.pass_secs(61)
    assert told.follower.verdict is None


def test_a_stuck_pod_that_has_ended_does_not_fail_the_job_later() -> None:
    told = Told(restarts=1)
    told.pod("worker/0", PULLING)
    told.pod("worker/0", EVICTED)
    told.pass_secs(61)
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


def test_a_deletion_that_never_works_does_not_hold_the_end_up_for_ever() -> None:
    told = Told(stop_secs=10)
    told.all_run()
    told.pod("worker/0", terminated(3))
    told.pass_secs(39)
    assert told.follower.outcome is None
    notes = told.pass_secs(2)
    assert notes == ["master/0, ps/0: end not confirmed; run `clean`"]
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")
    assert told.follower.outcome is not None


# Ends that meet.


def test_a_task_that_fails_while_the_job_ends_is_named() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(3))
    told.pod("ps/0", terminated(2))
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")
    assert told.follower.states["ps/0"].status == "failed"
    told = Told()
    told.all_run()
    told.pod("master/0", terminated(0))
    assert told.pod("worker/0", terminated(3)) == ["worker/0 on n1: exit code 3; see its log"]


def test_a_user_who_stops_a_job_that_is_done_does_not_wait_for_the_grace() -> None:
    told = Told(grace_secs=30)
    told.all_run()
    told.pod("master/0", terminated(0))
    assert not told.follower.wants_deletion(told.now)
    told.follower.stop("stopped by SIGINT", 130, told.now)
    assert told.follower.wants_deletion(told.now)
    assert told.end == (0, "master/0 is done")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_master_that_is_done_before_the_deletion_reaches_it_is_done(is_deleted: bool) -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(3))
    told.follower.asks_for_deletion()
    told.pod("master/0", terminated(0), deleted=is_deleted)
    assert told.end == (0, "master/0 is done")


def test_the_grace_begins_with_the_success_and_not_with_a_failure_before_it() -> None:
    told = Told(grace_secs=30)
    told.all_run()
    told.pod("worker/0", terminated(3))
    told.now += 1.5
    told.pod("master/0", terminated(0))
    assert not told.follower.wants_deletion(told.now + 29)
    assert told.follower.wants_deletion(told.now + 30)


def test_the_success_of_a_pod_that_replaced_a_lost_one_counts() -> None:
    told = Told()
    told.all_run()
    told.pod("master/0", RUNNING, uid="2")
    assert told.end == (1, "master/0 on n1 failed: its pod was lost")
    told.pod("master/0", terminated(0), uid="2")
    assert told.end == (0, "master/0 is done")
    assert told.follower.states["master/0"].status == "ended"


def test_a_pod_that_was_lost_is_not_a_task_that_failed() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", RUNNING, uid="2")
    assert told.follower.verdict is not None
    assert told.follower.verdict.cause is Cause.HOST_LOST


def test_a_job_that_a_queue_has_let_go_is_not_suspended_though_its_pods_are_known_first() -> None:
    told = Told()
    told.all_run()
    told.follower.saw_tfjob(TFJobState(suspended=True), told.now)
    told.pass_secs(2)
    told.follower.saw_tfjob(TFJobState(), told.now)
    told.pass_secs(60)
    assert told.follower.verdict is None
    told.follower.saw_tfjob(TFJobState(suspended=True), told.now)
    told.pass_secs(4)
    assert told.end == (1, "the TFJob was suspended by someone else")


def test_a_late_word_of_a_suspension_does_not_explain_a_task_that_failed() -> None:
    told = Told()
    told.all_run()
    told.pod("worker/0", terminated(3))
    told.follower.saw_tfjob(TFJobState(suspended=True), told.now)
    assert told.end == (3, "worker/0 on n1 failed: exit code 3")


# Watches that have ended.


def test_a_pod_that_was_stuck_before_an_outage_may_run_by_now() -> None:
    told = Told()
    told.pod("worker/0", PULLING)
    told.follower.watch_ended()
    told.pass_secs(61)
    assert told.follower.verdict is None
    told.pod("worker/0", PULLING)
    told.pass_secs(0)
    assert told.end[1].startswith("worker/0 on n1 failed: ImagePullBackOff")


def test_a_missing_pod_is_not_judged_while_no_watch_shows_the_job() -> None:
    told = Told()
    told.all_run()
    told.follower.sees_tfjob = False
    told.gone("ps/0")
    told.pass_secs(60)
    assert told.follower.verdict is None
    told.follower.sees_tfjob = True
    told.pass_secs(0)
    assert told.end == (1, "ps/0 on n1 failed: its pod was lost")


# A chief with an evaluator.


def test_a_job_is_not_deleted_while_its_chief_runs_and_then_its_evaluator_has_time() -> None:
    told = Told(grace_secs=30)
    told.follower = Follower(
        make_job(kubernetes_cluster(chief=1, worker=1, ps=1, evaluator=1)).tasks,
        Limits(grace_secs=30),
        0,
        0.0,
    )
    for task in ("chief/0", "worker/0", "ps/0", "evaluator/0"):
        told.pod(task, RUNNING)
    told.pod("worker/0", terminated(0))
    told.pass_secs(500)
    assert told.follower.verdict is None
    assert not told.follower.wants_deletion(told.now)
    told.pod("chief/0", terminated(0))
    told.pod("ps/0", terminated(0))
    told.follower.saw_tfjob(TFJobState(succeeded=True), told.now)
    told.pass_secs(29)
    assert not told.follower.wants_deletion(told.now)
    told.pass_secs(2)
    assert told.follower.wants_deletion(told.now)
    assert told.end == (0, "chief/0 is done")
