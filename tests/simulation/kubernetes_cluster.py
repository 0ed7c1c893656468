"""Simulated Jobs, their controller, and nodes, which run pods, lose them and end them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from launch.backends.kubernetes.manifests import grace_secs, hold_secs
from launch.cluster.model import Limits
from tests.launch.backends.samples import job_status, pod_status
from tests.simulation.world import World


@dataclass
class SimPod:
    """A pod, as it really is.

    Attributes:
      has_started: whether its container has started.
      code: the container's exit code, as the API shows it.
      why: why it really ended: `done`, `own`, `deleted` by somebody, `disrupted` by the platform,
        `launcher`; "" before.
      ender: who deletes it; "" if nobody does.
      condition: reason and message of DisruptionTarget.
      evicted: the message of an eviction by its node; "" without one.
      began: when its container started.
      created: when the API server took it.
    """

    uid: str
    task: str
    node: str = ""
    has_started: bool = False
    code: Optional[int] = None
    why: str = ""
    ender: str = ""
    condition: Optional[tuple[str, str]] = None
    evicted: str = ""
    exists: bool = True
    has_ended: bool = False
    began: float = 0.0
    created: float = 0.0

    @property
    def type(self) -> str:
        """The type of the task."""
        return self.task.split("/")[0]

    @property
    def is_lead(self) -> bool:
        """Whether the task is the master or chief."""
        return self.type in ("master", "chief")

    @property
    def runs(self) -> bool:
        """Whether the container runs."""
        return self.has_started and not self.has_ended

    def as_object(self) -> dict[str, Any]:
        """Returns the pod as the API shows it."""
        status: dict[str, Any] = {"phase": "Running" if self.has_started else "Pending"}
        state: dict[str, Any] = {"running": {}} if self.has_started else {"waiting": {}}
        if self.has_ended:
            status["phase"] = "Failed" if self.code != 0 else "Succeeded"
            state = {"terminated": {"exitCode": self.code, "reason": "Error"}}
        if self.evicted:
            status |= {"reason": "Evicted", "message": self.evicted}
        if self.condition is not None:
            reason, message = self.condition
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            status["conditions"] = [{**condition, "message": message}]
        if self.node and not (self.has_ended and self.code is None):
            status["containerStatuses"] = [{"name": "tensorflow", "state": state}]
        kind, _, index = self.task.partition("/")
        pod = pod_status(status, (kind, int(index)), self.uid)
        created = f"2026-01-31T08:{int(self.created) // 60:02}:{int(self.created) % 60:02}Z"
        pod["metadata"]["creationTimestamp"] = created
        if self.ender:
            pod["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        return {"kind": "Pod", **pod, "spec": {"nodeName": self.node}}


_LINE_SECS = 5.0
_RESUME_SECS = 3.0  # which a lead takes at least, from its start to its end


@dataclass
class SimJob:
    """The Job of a task; `pods` are those that it made, and `is_complete` whether one succeeded."""

    pods: list[SimPod] = field(default_factory=list)
    is_complete: bool = False

    @property
    def needs_pod(self) -> bool:
        """Whether the controller makes a pod: in place of none, or of those that are deleted."""
        return not any(pod.exists and (pod.has_ended or not pod.ender) for pod in self.pods)


class Cluster:
    """The Service and the Jobs, their controller, the nodes, and the pods on them.

    Attributes:
      tasks: the names of the tasks.
      exists: whether the Service does, which owns the Jobs.
      jobs: task's name -> its Job.
      enders: who has deleted the Service, or asked for it.
      restarts: how often the launcher restarts each task.
      controller_waits: until when the controller does nothing.
      pods: uid -> pod, of all that there ever were.
      on_line: called with a pod that has written a line.
      is_silent: whether all tasks hang.
      ends: when each container has ended.
      sealed: when it was first certain that the job ends, to all who look; infinity before.
      harmed: when something first happened that may end the job before the lead is done.
      done: when the lead was done; None before.
    """

    def __init__(self, world: World, tasks: list[str], limits: Limits, restarts: int) -> None:
        self._world, self.tasks, self.limits = world, tasks, limits
        self.exists = self.is_silent = self._is_due = False
        self.enders: list[str] = []
        self.jobs: dict[str, SimJob] = {}
        self.restarts = restarts
        self.controller_waits = 0.0
        self.pods: dict[str, SimPod] = {}
        self.on_line: Callable[[SimPod], None] = lambda pod: None
        self.harmed: Optional[float] = None
        self.sealed = math.inf
        self.done: Optional[float] = None
        self.ends: list[tuple[float, SimPod]] = []
        self.train_secs = world.rng.uniform(3, 25)
        self.figures_secs = world.rng.choice((0.0, 1.0, 8.0))

    @property
    def lead(self) -> Optional[SimPod]:
        """The newest pod of the lead; None before it."""
        return next((pod for pod in reversed(list(self.pods.values())) if pod.is_lead), None)

    def existing(self) -> list[SimPod]:
        """Returns the pods that exist."""
        return [pod for pod in self.pods.values() if pod.exists]

    def harm(self) -> None:
        """Records that something happens that may end the job."""
        self.harmed = self._world.now if self.harmed is None else self.harmed

    def _create_pod(self, task: str) -> None:
        uid = f"{task}-{sum(p.task == task for p in self.pods.values())}"
        pod = SimPod(uid, task, created=self._world.now)
        self._world.say(pod.uid, "is created")
        self.pods[pod.uid] = pod
        self.jobs[task].pods.append(pod)
        self._world.later(self._world.rng.choice((0.1, 0.5, 2.0)), self._schedule, pod)

    def _schedule(self, pod: SimPod) -> None:
        if pod.exists and not pod.ender:
            pod.node = self._world.rng.choice(("n1", "n2", "n3"))
            self._world.later(self._world.rng.choice((0.2, 1.0)), self._start, pod)

    def _start(self, pod: SimPod) -> None:
        if pod.ender or pod.has_ended:
            return
        self._world.say(pod.uid, "starts on", pod.node)
        pod.has_started, pod.began = True, self._world.now
        self._world.later(0.3, self._write, pod)
        self._world.later(0.5, self._work, pod)

    def _write(self, pod: SimPod) -> None:
        if not pod.runs or self.is_silent or pod.type == "ps":
            return
        if self._has_ps or self.done is not None:
            self.on_line(pod)
        self._world.later(_LINE_SECS, self._write, pod)

    def _work(self, pod: SimPod) -> None:
        """Ends a program that is done."""
        if not pod.runs or self.is_silent:
            return
        rng, now = self._world.rng, self._world.now
        has_trained, is_done = now >= self.train_secs, self.done is not None
        if pod.is_lead:
            ready = now >= max(self.train_secs + self.figures_secs, pod.began + _RESUME_SECS)
            ends = ready and (self._has_ps or is_done)
        elif pod.type == "worker":
            ends = has_trained
        else:
            ends = is_done and rng.random() < 0.2
        if ends:
            self.ended(pod, 0, "done")
        else:
            self._world.later(rng.uniform(0.3, 0.8), self._work, pod)

    @property
    def _has_ps(self) -> bool:
        """Whether a ps can be reached."""
        return any(pod.runs and pod.type == "ps" for pod in self.pods.values())

    def ended(self, pod: SimPod, code: Optional[int], why: str) -> None:
        """Ends a pod's container."""
        if pod.has_ended or not pod.exists:
            return
        self._world.say(pod.uid, "ends with", code, why)
        pod.has_started, pod.has_ended, pod.code, pod.why = True, True, code, why
        self.ends.append((self._world.now, pod))
        if why == "done" and pod.is_lead:
            self.done = self._world.now
            self._seal()
        elif why != "done" and not self.restarts:
            self._seal()
        if why == "own":
            self.harm()
        if code != 0 and pod.type == "ps":
            self._fail_without(pod)
        if pod.ender:
            self._world.later(self._world.rng.choice((0.05, 0.5)), self.remove, pod)
        self.wake_controller()

    def _fail_without(self, ps: SimPod) -> None:
        """Makes some trainers fail, because a ps has ended."""
        rng = self._world.rng
        for pod in self.existing():
            if pod.runs and pod.type != "ps" and rng.random() < 0.4:
                self._world.later(rng.choice((0.05, 0.5, 4.0)), self.ended, pod, 1, "own")

    def delete(self, pod: SimPod, ender: str, grace: Optional[float] = None) -> None:
        """Deletes a pod, which has its grace period to end."""
        if not pod.exists:
            return
        limits, rng = self.limits, self._world.rng
        is_first = not pod.ender
        if is_first:
            self._world.say(pod.uid, "is deleted by", ender)
            pod.ender = ender
            self.wake_controller()
        if pod.has_ended or not pod.has_started:
            self._world.later(rng.choice((0.05, 0.5)), self.remove, pod)
            return
        why = "disrupted" if pod.condition is not None else pod.ender
        hold = min(hold_secs(pod.type, limits), rng.choice((1.0, 5.0)))
        last = float(grace_secs(pod.type, limits)) if grace is None else grace
        saved = hold + rng.choice((0.2, 2.0, 0.9 * limits.stop_secs, 99.0))
        if saved < last and is_first:
            self._world.later(saved, self.ended, pod, 143, why)
        self._world.later(last, self.ended, pod, 137, why)

    def remove(self, pod: SimPod) -> None:
        """Removes a pod object."""
        if pod.exists:
            pod.exists = False
            self._world.say(pod.uid, "is gone")
            self.wake_controller()

    # What follows are the Service, the Jobs and their controller.

    def create(self) -> None:
        """Creates the Service."""
        self.exists = True

    def create_jobs(self, tasks: list[str]) -> None:
        """Creates Jobs."""
        for task in tasks if self.exists else ():
            self.jobs[task] = SimJob()
        self.wake_controller()

    def as_objects(self) -> list[dict[str, Any]]:
        """Returns the Jobs and the Service as the API shows them."""
        found: list[dict[str, Any]] = [
            job_status(task, "Complete" if job.is_complete else "")
            for task, job in self.jobs.items()
        ]
        return [*found, *[{"kind": "Service", "metadata": {"name": "sim"}}] * self.exists]

    def delete_job(self, task: str, ender: str) -> None:
        """Deletes a task's Job; then its pods are deleted."""
        job = self.jobs.pop(task, SimJob())
        for pod in job.pods:
            self._world.later(self._world.rng.uniform(0.1, 1.0), self.delete, pod, ender)

    def delete_all(self, ender: str) -> None:
        """Deletes the Service; then its Jobs are deleted."""
        if not self.exists:
            return
        self.enders.append(ender)
        for task in self.tasks:
            self.delete_job(task, ender)
        self.exists = False
        self._seal()

    def _seal(self) -> None:
        self.sealed = min(self.sealed, self._world.now)

    def wake_controller(self) -> None:
        """Lets the controller look at the pods soon."""
        if not self._is_due:
            self._is_due = True
            self._world.later(self._world.rng.choice((0.05, 0.3, 1.5)), self._reconcile)

    def _reconcile(self) -> None:
        self._is_due = False
        if self._world.now < self.controller_waits:
            self.wake_controller()
            return
        for task, job in self.jobs.items():
            job.is_complete |= any(pod.exists and pod.code == 0 for pod in job.pods)
            if job.needs_pod and not job.is_complete:
                self._create_pod(task)
