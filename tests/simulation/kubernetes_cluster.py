"""A simulated TFJob, the training operator, and nodes, which run pods, lose them and end them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from launch.backends.kubernetes.manifests import grace_secs, hold_secs
from launch.cluster.model import Limits
from tests.simulation.world import World

_WAITING = {"ContainerCreating": "", "ImagePullBackOff": "Back-off pulling image"}


@dataclass
class SimPod:
    """A pod, as it really is.

    Attributes:
      waits: why its container waits; "" once that has started.
      code: the container's exit code, as the API shows it.
      why: why it really ended: `done`, `own`, `deleted` by somebody, `disrupted` by the platform,
        `launcher`, `operator`; "" before.
      ender: who deletes it; "" if nobody does.
      condition: reason and message of DisruptionTarget.
      evicted: the message of an eviction by its node; "" without one.
      began: when its container started.
    """

    uid: str
    task: str
    node: str = ""
    waits: str = "ContainerCreating"
    code: Optional[int] = None
    why: str = ""
    ender: str = ""
    condition: Optional[tuple[str, str]] = None
    evicted: str = ""
    is_oom: bool = False
    exists: bool = True
    has_ended: bool = False
    began: float = 0.0
    num_lines: int = 0

    @property
    def name(self) -> str:
        """The name, which a later pod of the task has as well."""
        return f"sim-{self.task.replace('/', '-')}"

    @property
    def type(self) -> str:
        """The type of the task."""
        return self.task.split("/")[0]

    @property
    def is_lead(self) -> bool:
        """Whether the task is the master or chief."""
        return self.type in ("master", "chief")

    @property
    def has_started(self) -> bool:
        """Whether the container has started."""
        return not self.waits

    @property
    def runs(self) -> bool:
        """Whether the container runs."""
        return self.has_started and not self.has_ended

    def as_object(self) -> dict[str, Any]:
        """Returns the pod as the API shows it."""
        kind, _, index = self.task.partition("/")
        labels = {"training.kubeflow.org/replica-type": kind}
        labels["training.kubeflow.org/replica-index"] = index
        metadata: dict[str, Any] = {"name": self.name, "uid": self.uid, "labels": labels}
        if self.ender:
            metadata["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        status: dict[str, Any] = {"phase": "Pending" if self.waits else "Running"}
        state: dict[str, Any] = {"running": {}}
        if self.waits:
            state = {"waiting": {"reason": self.waits, "message": _WAITING.get(self.waits, "")}}
        if self.has_ended:
            status["phase"] = "Failed" if self.code != 0 else "Succeeded"
            reason = "OOMKilled" if self.is_oom else "Error"
            state = {"terminated": {"exitCode": self.code, "reason": reason}}
        if self.evicted:
            status |= {"reason": "Evicted", "message": self.evicted}
        if self.condition is not None:
            reason, message = self.condition
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            status["conditions"] = [{**condition, "message": message}]
        if self.node and not (self.has_ended and self.code is None):
            status["containerStatuses"] = [{"name": "tensorflow", "state": state}]
        return {
            "kind": "Pod", "metadata": metadata, "spec": {"nodeName": self.node}, "status": status
        }  # fmt: skip


_LINE_SECS = 5.0
_RESUME_SECS = 3.0  # which a lead takes at least, from its start to its end


class Nodes:
    """The nodes, and the pods on them.

    Attributes:
      pods: uid -> pod, of all that there ever were.
      on_line: called with a pod and each new line of its log.
      is_silent: whether all tasks hang.
      ends: when each container has ended.
      harmed: when something first happened that may end the job before the lead is done.
      done: when the lead was done; None before.
      last_gone: when a pod was last removed.
      stuck_secs: how long the next pulls of images do not work.
    """

    def __init__(self, world: World, limits: Limits) -> None:
        rng = world.rng
        self.pods, self.limits = dict[str, SimPod](), limits
        self.on_line: Callable[[SimPod, str], None] = lambda pod, line: None
        self.is_silent = False
        self.last_gone = 0.0
        self.harmed: Optional[float] = None
        self.done: Optional[float] = None
        self.lost_nodes: set[str] = set()
        self.ends: list[tuple[float, SimPod]] = []
        self.stuck_secs: list[float] = []
        self.train_secs = rng.uniform(3, 25)
        self.figures_secs = rng.choice((0.0, 1.0, 8.0))
        self._world = world

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

    def wake_operator(self) -> None:
        """Lets the operator look at the pods soon."""

    def create_pod(self, task: str) -> None:
        """Creates a pod."""
        pod = SimPod(f"{task}-{sum(p.task == task for p in self.pods.values())}", task)
        self._world.say(pod.uid, "is created")
        self.pods[pod.uid] = pod
        self._world.later(self._world.rng.choice((0.1, 0.5, 2.0)), self._schedule, pod)

    def _schedule(self, pod: SimPod) -> None:
        nodes = sorted({"n1", "n2", "n3"} - self.lost_nodes)
        if not pod.exists or pod.ender or not nodes:
            return
        pod.node = self._world.rng.choice(nodes)
        secs = self.stuck_secs.pop() if self.stuck_secs else 0.0
        if secs:
            self.harm()
            self._world.say(pod.uid, "cannot pull its image for", secs)
            pod.waits = "ImagePullBackOff"
        self._world.later(secs + self._world.rng.choice((0.2, 1.0)), self._start, pod)

    def _start(self, pod: SimPod) -> None:
        if pod.ender or pod.has_ended or pod.node in self.lost_nodes:
            return
        self._world.say(pod.uid, "starts on", pod.node)
        pod.waits, pod.began = "", self._world.now
        self._world.later(0.3, self._write, pod)
        self._world.later(0.5, self._work, pod)

    def _write(self, pod: SimPod) -> None:
        if not pod.runs or self.is_silent or pod.type == "ps" or pod.node in self.lost_nodes:
            return
        if self._has_ps or self.done is not None:
            pod.num_lines += 1
            self.on_line(pod, f"{pod.uid} says {pod.num_lines}")
        self._world.later(_LINE_SECS, self._write, pod)

    def _work(self, pod: SimPod) -> None:
        """Ends a program that is done."""
        if not pod.runs or pod.node in self.lost_nodes or self.is_silent:
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
        pods = self.pods.values()
        return any(p.runs and p.type == "ps" and p.node not in self.lost_nodes for p in pods)

    def ended(self, pod: SimPod, code: Optional[int], why: str) -> None:
        """Ends a pod's container."""
        if pod.has_ended or not pod.exists or pod.node in self.lost_nodes:
            return
        self._world.say(pod.uid, "ends with", code, why)
        pod.has_ended, pod.code, pod.why, pod.waits = True, code, why, ""
        self.ends.append((self._world.now, pod))
        if why == "done" and pod.is_lead:
            self.done = self._world.now
        if why == "own":
            self.harm()
        if code != 0 and pod.type == "ps":
            self._fail_without(pod)
        if pod.ender:
            self._world.later(self._world.rng.choice((0.05, 0.5)), self.remove, pod)
        self.wake_operator()

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
        if pod.node in self.lost_nodes:
            return
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

    def lose_node(self, node: str, secs: float) -> None:
        """Loses a node, whose pods the platform deletes, and forgets after `secs`."""
        self._world.say(node, "is lost")
        self.harm()
        self.lost_nodes.add(node)
        self._world.later(secs / 2, self._taint, node)
        self._world.later(secs, self._forget, node)

    def _taint(self, node: str) -> None:
        for pod in self.existing():
            if pod.node == node and not pod.has_ended:
                pod.condition = ("DeletionByTaintManager", "Taint manager: deleting")
                self.delete(pod, "platform")

    def _forget(self, node: str) -> None:
        for pod in self.existing():
            if pod.node == node:
                if not pod.has_ended:
                    pod.condition = ("DeletionByPodGC", "PodGC: node no longer exists")
                    pod.has_ended, pod.code, pod.why, pod.ender = (
                        True,
                        None,
                        "disrupted",
                        "platform",
                    )
                self.remove(pod)

    def remove(self, pod: SimPod) -> None:
        """Removes a pod object."""
        if pod.exists:
            pod.exists = False
            self.last_gone = self._world.now
            self._world.say(pod.uid, "is gone")
            self.wake_operator()


class Cluster(Nodes):
    """The TFJob, its operator and its pods.

    Attributes:
      tasks: the names of the tasks.
      is_cancelled: whether the TFJob was deleted before anything else went wrong.
      sealed: when it was first certain that the job ends, to all who look.
      enders: who has deleted the TFJob, or asked for it.
      makes_anew: whether the operator replaces pods that a signal or the platform ended.
      operator_waits: until when the operator does nothing.
    """

    def __init__(self, world: World, tasks: list[str], limits: Limits) -> None:
        super().__init__(world, limits)
        self.tasks = tasks
        self.exists = self.is_cancelled = False
        self.sealed: Optional[float] = None
        self.enders: list[str] = []
        self.conditions: dict[str, str] = {}
        self.makes_anew = True
        self.operator_waits = 0.0
        self._is_foreground = self._is_due = False

    def _seal(self) -> None:
        self.sealed = self._world.now if self.sealed is None else self.sealed

    # What follows is the TFJob.

    def create(self) -> None:
        """Creates the TFJob."""
        self.exists = True
        self.wake_operator()

    def tfjob(self) -> dict[str, Any]:
        """Returns the TFJob as the API shows it."""
        metadata = {"name": "sim"}
        if self._is_foreground:
            metadata["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        conditions = [
            {"type": kind, "status": "True", "message": words}
            for kind, words in self.conditions.items()
        ]
        return {"kind": "TFJob", "metadata": metadata, "status": {"conditions": conditions}}

    def delete_job(self, ender: str, *, is_foreground: bool = False) -> str:
        """Deletes the TFJob; then its pods are deleted. Returns what kubectl prints."""
        if not self.exists:
            return ""
        self.enders.append(ender)
        for pod in self.existing():
            self._world.later(self._world.rng.uniform(0.1, 1.0), self.delete, pod, ender)
        if is_foreground:
            self._is_foreground = True
            self._world.later(0.5, self._end_foreground)
        else:
            self._remove_job()
        return 'tfjob.kubeflow.org "sim" deleted\n'

    def _end_foreground(self) -> None:
        if self.exists and self.existing():
            self._world.later(0.5, self._end_foreground)
        elif self.exists:
            self._remove_job()

    def _remove_job(self) -> None:
        self.exists = False
        self._seal()

    # What follows is the operator.

    def wake_operator(self) -> None:
        """Lets the operator look at the pods soon."""
        if not self._is_due:
            self._is_due = True
            self._world.later(self._world.rng.choice((0.05, 0.3, 1.5)), self._reconcile)

    def _reconcile(self) -> None:
        self._is_due = False
        if self._world.now < self.operator_waits:
            self.wake_operator()
            return
        if not self.exists or self._is_foreground:
            return
        if "Succeeded" in self.conditions or "Failed" in self.conditions:
            return
        for task in self.tasks:
            self._look_at(task)
        if "Succeeded" in self.conditions or "Failed" in self.conditions:
            self._world.say("the TFJob has", *self.conditions)
            self._seal()
            if not any(task.startswith("evaluator") for task in self.tasks):
                for pod in self.existing():
                    if not pod.has_ended:
                        self.delete(pod, "operator")

    def _look_at(self, task: str) -> None:
        pod = next((pod for pod in self.existing() if pod.task == task), None)
        if pod is None:
            self.create_pod(task)
        elif pod.has_ended and pod.code == 0 and pod.is_lead:
            self.conditions["Succeeded"] = "TFJob sim successfully completed."
        elif self.makes_anew and pod.has_ended and (pod.code is None or pod.code >= 128):
            self.delete(pod, "operator")
        elif pod.has_ended and pod.code != 0:
            self.conditions["Failed"] = f"TFJob sim has failed because 1 {pod.type} failed."
