"""Simulated nodes, which run pods, lose them and end them."""

from collections.abc import Callable
from typing import Any, Optional

from launch.backends.kubernetes.pod_template import grace_secs, hold_secs
from launch.cluster.model import Limits
from tests.simulation.kubernetes_pods import SimPod
from tests.simulation.world import World

_LINE_SECS = 5.0
_LONGEST_PULL_SECS = 100.0  # a pull that takes longer never works
_RESUME_SECS = 3.0  # which a lead takes at least, from its start to its end


class Nodes:
    """The nodes, and the pods on them.

    Attributes:
      pods: uid -> pod, of all that there ever were.
      on_change: called with kind, event and object when an object has changed.
      on_line: called with a pod and each new line of its log, and with None at its end.
      is_silent: whether all tasks hang.
      harmed: when something first happened that may end the job before the lead is done.
      done: when the lead was done; None before.
      last_gone: when a pod was last removed.
      stuck_secs: how long the next pulls of images do not work.
    """

    def __init__(self, world: World, limits: Limits) -> None:
        rng = world.rng
        self.pods, self.limits = dict[str, SimPod](), limits
        self.on_change: Callable[[str, str, Any], None] = lambda kind, event, what: None
        self.on_line: Callable[[SimPod, Optional[bytes]], None] = lambda pod, line: None
        self.is_silent = False
        self.last_gone = 0.0
        self.harmed: Optional[float] = None
        self.done: Optional[float] = None
        self.lost_nodes: set[str] = set()
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
        self.on_change("pods", "ADDED", pod.as_object())
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
            is_hopeless = secs > _LONGEST_PULL_SECS and self._world.rng.random() < 0.3
            pod.waits = "InvalidImageName" if is_hopeless else "ImagePullBackOff"
        self.on_change("pods", "MODIFIED", pod.as_object())
        self._world.later(secs + self._world.rng.choice((0.2, 1.0)), self._start, pod)

    def _start(self, pod: SimPod) -> None:
        if pod.ender or pod.has_ended or pod.node in self.lost_nodes:
            return
        self._world.say(pod.uid, "starts on", pod.node)
        pod.waits, pod.began = "", self._world.now
        self.on_change("pods", "MODIFIED", pod.as_object())
        self._world.later(0.3, self._write, pod)
        self._world.later(0.5, self._work, pod)

    def _write(self, pod: SimPod) -> None:
        if not pod.runs or self.is_silent or pod.type == "ps" or pod.node in self.lost_nodes:
            return
        if self._has_ps or self.done is not None:
            minute, secs = divmod(self._world.now, 60)
            words = f"{pod.uid} says {len(pod.lines)}"
            line = f"2026-01-31T09:{int(minute):02}:{secs:09.6f}Z {words}\n".encode()
            pod.lines.append(line)
            self.on_line(pod, line)
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
        if why == "done" and pod.is_lead:
            self.done = self._world.now
        if why == "own":
            self.harm()
        self.on_line(pod, None)
        self.on_change("pods", "MODIFIED", pod.as_object())
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
            self.on_change("pods", "MODIFIED", pod.as_object())
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
                    self.on_change("pods", "MODIFIED", pod.as_object())
                self.remove(pod)

    def remove(self, pod: SimPod) -> None:
        """Removes a pod object."""
        if pod.exists:
            pod.exists = False
            self.last_gone = self._world.now
            self._world.say(pod.uid, "is gone")
            for stream in pod.readers:
                stream.end(0)
            self.on_change("pods", "DELETED", pod.as_object())
            self.wake_operator()
