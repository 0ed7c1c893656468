"""What polls show of a job, how the job ends by that, and when it is deleted."""

import json
import queue
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Optional, cast

import pytest

from launch.backends.kubernetes.backend import Detached, JobDriver, Kubernetes
from launch.backends.kubernetes.kubectl import ForbiddenError, JobObjects, Kubectl
from launch.backends.kubernetes.pod_watch import PodWatch
from launch.backends.kubernetes.state import Pod, Poll, read_pod, read_poll, read_refusals
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.errors import HostError
from launch.record.result import ExitReason
from launch.supervise.run_loop import RunLoop
from launch.supervise.supervisor import Action, Note, Signal, Start
from tests.launch.backends.samples import (
    RUNNING,
    container_state,
    kubernetes_cluster,
    pod_status,
    terminated,
)

BACKING_OFF = container_state(waiting={"reason": "ImagePullBackOff", "message": "Back-off"})
PULLING = container_state(
    waiting={"reason": "ErrImagePull", "message": 'rpc error: failed to pull "x": not found'}
)
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
        (RUNNING, "running", None, "", ExitReason.TASK_FAILED),
        (container_state(waiting={"reason": "ContainerCreating"}), "waiting", None, "",
         ExitReason.TASK_FAILED),
        (terminated(3), "ended", 3, "exit code 3", ExitReason.TASK_FAILED),
        (terminated(137, "OOMKilled"), "ended", 137, "exit code 137, OOMKilled; it needs more mem",
         ExitReason.TASK_FAILED),
        (EVICTED, "ended", None, "Evicted: The node was low on memory.", ExitReason.PLATFORM),
        (UNSCHEDULABLE, "waiting", None, "Unschedulable: 0/3 nodes are available: 3 Insufficient",
         ExitReason.TASK_FAILED),
        (PULLING, "waiting", None, "ErrImagePull: lab/x:1: not found; look at `image:`, `image",
         ExitReason.TASK_FAILED),
        (BACKING_OFF, "waiting", None, "", ExitReason.TASK_FAILED),
        (PAST_DEADLINE, "ended", 143, "DeadlineExceeded: Pod was active; `deadline_secs:` under ",
         ExitReason.TIME_LIMIT),
        (BY_PREEMPTION, "ended", 143, "PreemptionByScheduler: preempting; exit code 143",
         ExitReason.PLATFORM),
        (DRAINED, "running", None, "EvictionByEvictionAPI: evicting", ExitReason.PLATFORM),
        (OWN_VOLUME, "ended", None, "Evicted: Usage of EmptyDir volume", ExitReason.TASK_FAILED),
        (disrupted({}, "PreemptionByScheduler", "preempting"), "waiting", None,
         "PreemptionByScheduler: preempting", ExitReason.PLATFORM),
    ],
)  # fmt: skip
def test_a_pod_says_how_it_is(
    status: Any, state: str, code: Any, words: str, cause: ExitReason
) -> None:
    found = read_pod(pod_status(status))
    assert (found.task, found.node) == ("worker/0", "n1")
    assert (found.state, found.code, found.cause) == (state, code, cause)
    assert found.words.startswith(words)
    assert bool(found.words) == bool(words)


@pytest.mark.parametrize(
    ("grace", "cause"), [(30, ExitReason.PLATFORM), (0, ExitReason.TASK_FAILED)]
)
def test_a_pod_that_is_deleted_after_its_end_has_failed(grace: int, cause: ExitReason) -> None:
    pod = pod_status(terminated(137))
    deleted = "2026-01-31T09:00:00Z"
    pod["metadata"] |= {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}
    assert read_pod(pod).cause is cause


def test_a_pod_that_belongs_to_no_task_is_left_out() -> None:
    other = {"kind": "Pod", "metadata": {"name": "debug", "uid": "1"}}
    assert read_poll(json.dumps({"items": [other]})).pods == ()


def test_a_poll_shows_the_job_and_its_pods() -> None:
    pod = {"kind": "Pod", **pod_status(RUNNING)}
    service: dict[str, Any] = {"kind": "Service", "metadata": {}}
    poll = read_poll(json.dumps({"kind": "List", "items": [pod, service]}))
    assert [pod.name for pod in poll.pods] == ["job-worker-0"]
    assert not poll.is_deleted
    assert read_poll('{"kind": "List", "items": []}') == Poll(is_deleted=True)
    service["metadata"] = {"deletionTimestamp": "2026-01-31T09:00:00Z"}
    assert read_poll(json.dumps({"kind": "List", "items": [service]})).is_deleted


@pytest.mark.parametrize("printed", ["error: what", "[1]", '{"kind": "Status"}'])
def test_what_is_no_list_of_objects_is_named(printed: str) -> None:
    with pytest.raises(HostError, match="kubectl get printed '"):
        read_poll(printed)


class Told:
    """A watch of a master, a worker and a ps, what the next poll shows, and the clock."""

    def __init__(self, restarts: int = 0, **limits: Any) -> None:
        self.now = 0.0
        tasks = make_job(kubernetes_cluster()).tasks
        self.watch = PodWatch(tasks, Limits(**limits), restarts, self.now)
        self.is_deleted = False
        self.jobs = dict.fromkeys(self.watch.states, "")
        self.pods: dict[str, Pod] = {}
        self.wants_deletion = False

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

    def poll(self, *, is_deleted: bool = False) -> list[str]:
        """Polls; `is_deleted` deletes the Service before."""
        self.is_deleted = is_deleted or self.is_deleted
        self.jobs = {} if self.is_deleted else self.jobs
        poll = Poll(tuple(self.pods.values()), self.jobs, is_deleted=self.is_deleted)
        return self._said(self.watch.saw(poll, self.now))

    def _said(self, actions: Sequence[Action]) -> list[str]:
        """Returns what is told, and which tasks are to start."""
        self.wants_deletion |= any(isinstance(action, Signal) for action in actions)
        said = [action.text for action in actions if isinstance(action, Note)]
        return said + [f"start {action.task}" for action in actions if isinstance(action, Start)]

    def gone(self, task: str) -> list[str]:
        del self.pods[task]
        return self.poll()

    def stop(self) -> None:
        """The user stops the job, which is then deleted."""
        self._said(self.watch.supervisor.stop(signal.SIGINT, self.now))
        self.watch.is_deleted = True

    def all_run(self) -> None:
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, RUNNING)

    def pass_secs(self, secs: float) -> list[str]:
        self.now += secs
        return self._said(self.watch.tick(self.now))

    def all_are_gone(self) -> None:
        """The launcher deletes the job, and all pods end by that."""
        self.watch.is_deleted = True
        for task in ("master/0", "worker/0", "ps/0"):
            self.pod(task, terminated(143), deleted=True)
        self.pods = {}
        self.now += 2
        self.poll(is_deleted=True)
        self.pass_secs(0)

    @property
    def cause(self) -> Optional[ExitReason]:
        found = self.watch.supervisor.result or self.watch.supervisor.expected
        assert found is not None
        return found.cause

    @property
    def end(self) -> tuple[int, str]:
        assert self.watch.supervisor.expected is not None
        return (self.watch.supervisor.expected.exit_code, self.watch.supervisor.expected.reason)


def running(restarts: int = 0, **limits: Any) -> Told:
    """Returns a watch whose pods all run."""
    told = Told(restarts, **limits)
    told.all_run()
    return told


def test_the_job_is_over_with_its_master() -> None:
    told = running(grace_secs=30)
    told.pod("master/0", terminated(0, "Completed"))
    assert told.end == (0, "master/0 is done")
    told.pass_secs(29)
    assert not told.wants_deletion  # the worker may still end by itself
    told.pod("worker/0", terminated(0, "Completed"))
    assert told.wants_deletion
    assert told.watch.supervisor.result is None
    told.all_are_gone()
    assert told.watch.supervisor.result is not None


def test_an_ended_pod_that_is_still_there_is_not_the_new_one() -> None:
    told = running(restarts=2)
    told.pod("worker/0", terminated(1))
    assert told.pass_secs(1.0) == ["start worker/0"]
    assert told.poll() == told.pass_secs(9.0) == []


def test_a_pod_whose_deadline_is_over_is_not_made_anew() -> None:
    told = running(restarts=5)
    told.pod("worker/0", PAST_DEADLINE)
    assert told.end[0] == 124
    assert told.end[1].startswith("worker/0 on n1 failed: DeadlineExceeded: Pod was active")
    assert told.cause is ExitReason.TIME_LIMIT


def test_a_queued_job_waits_without_limit_and_says_why_once() -> None:
    told = Told(start_secs=100)
    told.pod("ps/0", RUNNING)
    told.change("master/0", UNSCHEDULABLE)
    words = "Unschedulable: 0/3 nodes are available: 3 Insufficient gpu."
    assert told.pod("worker/0", UNSCHEDULABLE) == [f"master/0, worker/0 wait: {words}"]
    told.pass_secs(9000)
    one_less = {**NO_NODE, "message": "0/2 nodes are available: 2 Insufficient gpu."}
    condition = {"type": "PodScheduled", "status": "False", **one_less}
    assert told.pod("worker/0", {"phase": "Pending", "conditions": [condition]}) == []
    told.pod("master/0", RUNNING)
    told.pod("worker/0", RUNNING)
    told.pass_secs(99)
    assert told.watch.supervisor.expected is None
    told.pass_secs(2)  # the limit has counted since all pods run
    limits = "the limits are start_secs and idle_secs"
    assert told.end == (124, f"no training step within 100 s; {limits}")


def test_an_image_that_cannot_be_pulled_is_told_once_for_all_tasks() -> None:
    told = Told()
    told.change("master/0", PULLING)
    (note,) = told.pod("worker/0", PULLING)
    assert note.startswith("master/0, worker/0 wait: ErrImagePull: lab/x:1: not found;")
    for status in (BACKING_OFF, PULLING, BACKING_OFF):
        assert told.pod("worker/0", status) == []
    assert told.pod("ps/0", PULLING) == []


def test_a_suspended_job_waits_and_is_told() -> None:
    told = Told()
    told.jobs["ps/0"] = "Suspended"
    assert told.pod("master/0", RUNNING) == [
        "ps/0 waits: Suspended: its Job is, as a queue does until there is room"
    ]
    assert told.watch.without_pod == ["worker/0"]


def test_a_new_lead_waits_for_the_end_of_the_earlier_one() -> None:
    """As on a node that does not answer: the new one would be refused the output folder."""
    told = Told(restarts=1)
    told.all_run()
    earlier = told.pods["master/0"]
    told.pods["old"] = replace(earlier, words="its pod was deleted", by_deletion=True)
    del told.pods["master/0"]
    new = replace(earlier, uid="new", created="2026-01-31T09:05:00Z")
    told.pods["new"] = new
    assert told.poll() == ["master/0 on n1: its pod was deleted; restart 1 of 1 in 1 s"]
    assert told.pass_secs(1) == ["start master/0"]  # the driver deletes the Job for now
    told.pods["new"] = replace(new, state="ended", code=2)
    assert told.poll() == []
    assert told.watch.held == {"master/0"}
    told.pods = {name: pod for name, pod in told.pods.items() if name not in ("old", "new")}
    assert told.poll() == []
    assert told.watch.held == set()
    told.pod("master/0", RUNNING, uid="3")
    assert told.watch.states["master/0"].status == "running"


def test_pods_that_do_not_end_are_ended_and_named() -> None:
    told = running(stop_secs=10)
    told.stop()
    told.gone("master/0")
    assert told.pass_secs(34) == []
    assert told.pass_secs(2) == ["worker/0 still running: killed"]
    assert told.pass_secs(6) == ["worker/0: end not confirmed; run `clean`"]
    assert told.pass_secs(34) == []  # the ps has as long as the others
    assert told.pass_secs(2) == ["ps/0 still running: killed"]
    told.pass_secs(6)
    assert told.watch.supervisor.result is not None


def test_a_task_whose_pod_was_never_made_has_ended_with_its_job() -> None:
    told = Told()
    told.pod("master/0", RUNNING)
    told.stop()
    told.gone("master/0")
    assert told.watch.supervisor.result is None
    told.poll(is_deleted=True)
    told.pass_secs(0)
    assert told.watch.supervisor.result is not None


# Whose fault it is.


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (BY_PREEMPTION, "PreemptionByScheduler: preempting"),
        (terminated(143), "its pod was deleted"),
    ],
)
def test_a_pod_that_somebody_ended_is_not_a_task_that_failed(status: Any, words: str) -> None:
    told = running()
    told.pod("worker/0", status, deleted=True)
    told.all_are_gone()
    assert told.end == (143, f"worker/0 on n1 failed: {words}; exit code 143")
    assert told.cause is ExitReason.PLATFORM


def test_a_deleted_job_is_named_though_its_pods_end_by_that() -> None:
    told = running(restarts=1)
    told.change("worker/0", terminated(143), deleted=True)
    told.poll(is_deleted=True)
    assert told.end == (1, "the job was deleted by someone else")
    assert told.wants_deletion
    assert "start worker/0" not in told.pass_secs(99.0)
    told.all_are_gone()
    assert told.cause is ExitReason.CANCELLED


def test_a_ps_out_of_memory_is_named_though_a_worker_reports_first() -> None:
    told = running()
    told.pod("worker/0", terminated(1))
    told.watch.is_deleted = True
    told.now += 1
    told.pod("ps/0", terminated(137, "OOMKilled"), deleted=True)
    code, reason = told.end
    assert code == 137
    assert reason.startswith("ps/0 on n1 failed: exit code 137, OOMKilled")


def test_a_worker_that_fails_because_of_a_drained_ps_is_not_the_cause() -> None:
    told = running()
    told.pod("ps/0", DRAINED, deleted=True)
    assert told.watch.supervisor.expected is None
    told.pod("worker/0", terminated(1))
    assert told.end == (1, "ps/0 on n1 failed: EvictionByEvictionAPI: evicting")


def test_a_pod_that_is_gone_unseen_fails_the_job() -> None:
    told = running()
    words = "worker/0 on n1 failed: its pod was deleted; stopping the others"
    assert told.gone("worker/0") == [words]
    assert told.cause is ExitReason.PLATFORM


@pytest.mark.parametrize("has_stepped", [False, True])
def test_a_pod_that_is_replaced_unseen_counts_as_one_restart_and_may_wait(
    has_stepped: bool,
) -> None:
    """As for a node that is not ready: the limits count again once the new pod runs."""
    told = running(restarts=1, start_secs=100, idle_secs=100)
    told.watch.supervisor.heard(told.now, stepped=has_stepped)
    again, _ = told.pod("worker/0", UNSCHEDULABLE, uid="2")
    assert again == "worker/0 on n1: its pod was deleted; restart 1 of 1 in 1 s"
    assert told.poll() == told.pass_secs(9000) == []
    assert told.pod("worker/0", RUNNING, uid="2") == told.pass_secs(99) == []
    state = told.watch.states["worker/0"]
    assert (state.status, state.restarts) == ("running", 1)
    told.pass_secs(2)
    assert told.end[0] == 124


@pytest.mark.parametrize("is_newest_first", [True, False])
def test_a_deleted_pod_and_the_one_in_its_place_cost_one_restart(is_newest_first: bool) -> None:
    """The Job's controller makes a pod at once; kubectl lists pods by their names."""
    told = Told(restarts=1)
    told.all_run()

    def see(status: Any) -> list[str]:
        old = pod_status(RUNNING, uid="worker/0-1")
        old["metadata"] |= {"deletionTimestamp": "2026-01-31T09:05:00Z"}
        new = pod_status(status, uid="worker/0-2")
        new["metadata"] |= {"creationTimestamp": "2026-01-31T09:05:00Z"}
        del told.pods["worker/0"]
        pair = [read_pod(shown) for shown in (old, new)]
        poll = Poll((*told.pods.values(), *(pair[::-1] if is_newest_first else pair)))
        told.pods["worker/0"] = pair[1]
        return told._said(told.watch.saw(poll, told.now))

    waits = see(container_state(waiting={"reason": "ContainerCreating"}))
    assert waits == ["worker/0 on n1: its pod was deleted; restart 1 of 1 in 1 s"]
    assert see(RUNNING) == []
    assert told.pass_secs(9.0) == []
    told.pod("worker/0", terminated(3), uid="2")  # it is watched
    assert told.end == (3, "worker/0 on n1 failed: exit code 3, after 1 restarts")


NO_LOGS = (
    'pods "w" is forbidden: User "lab" cannot get resource "pods/log" in API group "" in the '
    'namespace "x"'
)
DOWN = HostError("the cluster does not answer")


class Cluster(JobObjects):
    """The objects of a job, whose deletion gets the answer that a test chooses."""

    def __init__(self) -> None:
        kubectl = Kubectl(None, None)
        kubectl.command = lambda *words: ["true"]  # type: ignore[method-assign]
        super().__init__(kubectl, "job")
        self.error: Optional[HostError] = None
        self.pods: dict[str, Pod] = {}
        self.events = ""
        self.num_asked = 0

    def poll(self) -> Poll:
        if self.error is not None:
            raise self.error
        return Poll(tuple(self.pods.values()), dict.fromkeys(("master/0", "worker/0", "ps/0"), ""))

    def refusals(self) -> dict[str, str]:
        return read_refusals(self.events)

    def delete(self, kind: str = "", *words: str) -> None:
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
    """A driver that follows a master, a worker and a ps, all of which run."""

    def __init__(self) -> None:
        self.cluster, self.loop, self.now = Cluster(), Loop(), 1000.0
        tasks = make_job(kubernetes_cluster()).tasks
        self.watch = PodWatch(tasks, Limits(), 0, self.now)
        loop, secret = cast("RunLoop", self.loop), "first line\nthe second line\nlast\n"
        self.driver = JobDriver(self.cluster, self.watch, loop, [secret], {})
        for task in ("master", "worker", "ps"):
            self.change(task, RUNNING)

    def change(self, task: str, status: Any) -> None:
        """Changes a task's pod."""
        self.cluster.pods[task] = read_pod(pod_status(status, (task, 0), task))

    def tick(self, secs: float = 2.0) -> None:
        self.now += secs
        self.driver.tick(self.now)

    def hear_ends(self) -> None:
        """Takes the ends of the connections to the logs."""
        for _ in range(3):
            self.driver.handle(self.loop.events.get(timeout=30))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.tick()
    rig.hear_ends()
    yield rig
    rig.driver.end("run", is_left=True)


def test_a_job_is_deleted_after_the_log_of_the_task_that_failed_is_read(rig: Rig) -> None:
    rig.change("worker", terminated(3))
    rig.tick()
    assert rig.cluster.num_asked == 0
    rig.hear_ends()
    rig.tick()
    assert rig.cluster.num_asked == 1


def test_a_job_is_deleted_though_a_log_cannot_be_read_and_tried_again_if_that_fails(
    rig: Rig,
) -> None:
    rig.change("worker", terminated(3))
    rig.tick()
    rig.cluster.error = DOWN
    for secs in (4.9, 0.2, 1.0, 4.0):
        rig.tick(secs)
    assert rig.cluster.num_asked == 2
    again = f"{DOWN}; trying again: delete job"
    assert rig.loop.notes == ["worker/0 on n1 failed: exit code 3; stopping the others", again]


def test_an_outage_is_told_once(rig: Rig) -> None:
    refused = ForbiddenError("pods is forbidden: no")
    for error in (DOWN, DOWN, refused, None, DOWN):
        rig.cluster.error = error
        rig.tick()
    goes_on = "the job goes on, trying again"
    assert rig.loop.notes == [f"{error}; {goes_on}" for error in (DOWN, refused)]


def test_a_refusal_of_the_first_poll_ends_the_run() -> None:
    rig = Rig()
    rig.cluster.error = DOWN
    rig.tick()
    rig.cluster.error = ForbiddenError("pods is forbidden: no")
    with pytest.raises(ForbiddenError, match="pods is forbidden: no"):
        rig.tick()


def test_why_a_job_has_no_pod_is_told_after_some_time_once_for_all_tasks() -> None:
    rig = Rig()
    event = "Error creating: pods x is forbidden: exceeded quota: q, requested: pods=1"
    names = [f"job-{task}-0" for task in ("master", "worker", "other")]
    items = [{"involvedObject": {"name": name}, "message": event} for name in names]
    rig.cluster.events = json.dumps({"items": items})
    for task in ("master", "worker"):
        del rig.cluster.pods[task]
    for secs in (2.0, 14.9, 0.2, 20.0, 20.0):
        rig.tick(max(secs, 0.2))
        if secs == 14.9:
            assert rig.loop.notes == []
    words = "no pod can be created for master/0, worker/0: exceeded quota: q, requested: pods=1"
    assert rig.loop.notes == [words]
    rig.driver.end("run", is_left=True)


def test_without_the_right_to_read_logs_the_job_goes_on_and_is_told_once(rig: Rig) -> None:
    rig.cluster.kubectl.command = (  # type: ignore[method-assign]
        lambda *words: ["sh", "-c", f"echo '{NO_LOGS}' >&2; exit 1"]
    )
    rig.tick()
    rig.hear_ends()
    for _ in range(100):
        rig.tick(99.0)
    words = "kubernetes: user lab may not get pods/log in namespace x; docs/launch.md has the Role"
    (note,) = rig.loop.notes
    assert note.startswith(words)
    assert note.endswith("; the job goes on, and its lines are not shown")
    assert rig.watch.supervisor.expected is None
    rig.change("worker", terminated(3))
    rig.tick()
    rig.tick()  # it does not wait for lines
    assert rig.cluster.num_asked == 1


def test_a_poll_follows_soon_where_a_log_has_ended(rig: Rig) -> None:
    rig.change("worker", terminated(3))
    rig.tick(0.4)
    assert rig.watch.supervisor.expected is not None


def test_sighup_leaves_a_job_but_not_one_that_ends(rig: Rig) -> None:
    with pytest.raises(Detached):
        rig.driver.stop(signal.SIGHUP)
    rig.driver.stop(signal.SIGINT)
    rig.driver.stop(signal.SIGHUP)
    assert rig.loop.notes[-1] == "SIGHUP: the job is ending already"
    rig.tick()
    assert rig.cluster.num_asked == 1


def test_at_its_end_the_launcher_deletes_all_or_says_how_to(rig: Rig) -> None:
    rig.cluster.owner = {"uid": "1"}
    rig.driver.end("run", is_left=True)
    assert rig.cluster.num_asked == 0
    rig.driver.end("run", is_left=False)
    assert (rig.cluster.num_asked, rig.loop.notes) == (1, [])
    rig.cluster.error = DOWN
    rig.driver.end("run", is_left=False)
    assert rig.loop.notes == [f"{DOWN}; to end what is left: clean --run run"]


def test_each_line_of_a_secret_is_masked(rig: Rig) -> None:
    for line in ("first line", "a second line", "the second line!", "last"):
        rig.driver._take_line(rig.cluster.pods["worker"], line)
    assert rig.loop.lines == ["***", "a second line", "***!", "last"]


ENDED, LIVE = (read_pod(pod_status(status)) for status in (terminated(0), RUNNING))


@pytest.mark.parametrize(
    ("pods", "goes_on"),
    [
        ([ENDED, LIVE], "job x"),
        ([ENDED], ""),
        ([], ""),  # their `ttlSecondsAfterFinished` has passed
    ],
)
def test_a_job_is_over_with_its_pods(
    monkeypatch: pytest.MonkeyPatch, pods: Any, goes_on: str
) -> None:
    monkeypatch.setattr(JobObjects, "poll", lambda _: Poll(tuple(pods)))
    place = {"context": "lab", "namespace": "vision", "name": "x"}
    job = Kubernetes().job_of({"kubernetes": place})
    assert job is not None
    assert job.state() == goes_on
