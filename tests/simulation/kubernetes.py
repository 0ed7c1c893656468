"""A job in a simulated Kubernetes: pods change by chance, and the real watch sees polls of them.

What the driver does about kubectl and logs, tests/launch/backends/test_pod_watch.py sees.
"""

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from launch.backends.kubernetes.manifests import overdue_secs
from launch.backends.kubernetes.pod_watch import PodWatch
from launch.backends.kubernetes.state import read_poll
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.record.result import ExitReason, Result
from launch.supervise.supervisor import Action, Signal, Start
from tests.launch.backends import samples
from tests.simulation import invariants
from tests.simulation.world import World

_POLL_SECS = 2.0
_LONGEST_SECS = 900.0
_LIMITS = Limits(start_secs=60, idle_secs=30, grace_secs=8, stop_secs=6)
_CREATING = samples.container_state(waiting={"reason": "ContainerCreating"})
_DRAINED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


@dataclass
class SimPod:
    """A pod, as it really is.

    Attributes:
      code: the exit code of the container; None before its end.
      ender: who deletes it: `somebody`, the `platform` or the `launcher`; "" if nobody does.
    """

    task: str
    uid: str
    created: int
    runs: bool = False
    code: Optional[int] = None
    ender: str = ""

    def as_object(self) -> dict[str, Any]:
        """Returns the pod as the API shows it."""
        status: dict[str, Any] = samples.RUNNING if self.runs else _CREATING
        if self.code is not None:
            phase = "Failed" if self.code else "Succeeded"
            status = {**samples.terminated(self.code), "phase": phase}
        if self.ender == "platform":
            status = {**status, "conditions": [{**_DRAINED, "message": "evicting"}]}
        kind, _, index = self.task.partition("/")
        pod = samples.pod_status(status, (kind, int(index)), self.uid)
        pod["metadata"]["creationTimestamp"] = f"{self.created:09}"
        if self.ender:
            pod["metadata"]["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        return {"kind": "Pod", **pod}


class KubernetesRun:
    """One job, and what always holds, checked from what really happened.

    Attributes:
      broken: (name of the invariant, what has happened) of each breach.
    """

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.world = World(seed, traces=traces)
        rng = self.world.rng
        self.broken: list[tuple[str, str]] = []
        self._restarts = rng.choice((0, 0, 1, 3))
        tasks = make_job(samples.kubernetes_cluster()).tasks
        self._watch = PodWatch(tasks, _LIMITS, self._restarts, 0.0)
        self._jobs = {task.name for task in tasks}
        self._pods: list[SimPod] = []
        self._to_start: list[str] = []
        self._failed: set[str] = set()  # tasks that failed by themselves
        self._exists, self._is_cancelled, self._num_made = True, False, 0
        self._fault_rate = rng.choice((0.0, 0.02, 0.06))
        self._left_secs = rng.uniform(3, 40)  # of training
        self._harmed = self._done = self._stopped = self._end_began = self._heard = 0.0
        self._down_until = self._silent_from = 0.0
        if rng.random() < 0.2:
            self.world.later(rng.uniform(1, 40), self._stop)
        if rng.random() < 0.1:
            self.world.later(rng.uniform(1, 40), self._cancel)

    def run(self) -> "KubernetesRun":
        """Runs until the watch has ended; returns this run, with what was wrong."""
        self._step()
        self.world.run(_LONGEST_SECS, lambda: self._watch.supervisor.result is not None)
        self.world.say("result:", self._watch.supervisor.result)
        self._check(self._watch.supervisor.result)
        return self

    def _breach(self, invariant: str, words: str) -> None:
        self.world.say("BROKEN", invariant, words)
        self.broken.append((invariant, words))

    def _step(self) -> None:
        """Lets two seconds pass, and polls."""
        rng, now = self.world.rng, self.world.now
        for task in sorted(self._jobs):
            held = [pod for pod in self._pods if pod.task == task and not pod.ender]
            if not held and rng.random() < 0.7:
                self._num_made += 1
                self._pods.append(SimPod(task, f"{task}-{self._num_made}", self._num_made))
        for pod in list(self._pods):
            self._change(pod)
        if any(pod.task == "master/0" and pod.runs for pod in self._pods) and not self._silent_from:
            self._heard = now
            self._watch.supervisor.heard(now, stepped=True)
        actions: list[Action] = []
        if now >= self._down_until:
            self._down_until = now + 20 * (rng.random() < self._fault_rate)
            jobs = [samples.job_status(task) for task in self._jobs]
            service = [{"kind": "Service", "metadata": {}}] * self._exists
            items = [*[pod.as_object() for pod in self._pods], *jobs, *service]
            actions += self._watch.saw(read_poll(json.dumps({"items": items})), now)
        self._carry_out([*actions, *self._watch.tick(now)])
        self.world.later(_POLL_SECS, self._step)

    def _change(self, pod: SimPod) -> None:
        """Changes a pod, or does not, as the cluster, its users and the program do by chance."""
        rng, trains = self.world.rng, any(p.runs and p.task == "ps/0" for p in self._pods)
        if pod.code is not None or pod.ender:
            if pod.code is not None and pod.ender and rng.random() < 0.5:
                self._pods.remove(pod)  # and never before its end was there to be seen for a while
            elif pod.code is None and rng.random() < 0.4:
                self._end(pod, rng.choice((143, 143, 137)))
        elif not pod.runs:
            pod.runs = rng.random() < 0.6
        elif rng.random() < self._fault_rate:
            self._break(pod)
        elif pod.task == "master/0" and trains:
            self._left_secs -= _POLL_SECS
            if self._left_secs <= 0:
                self._end(pod, 0)
                self._done = self._done or self.world.now
        elif pod.task == "worker/0" and self._left_secs < 4:
            self._end(pod, 0)

    def _break(self, pod: SimPod) -> None:
        """Makes something go wrong with a pod that runs."""
        kind = self.world.rng.choice(("fails", "fails", "deleted", "drained", "vanishes", "hangs"))
        self._harmed = self._harmed or self.world.now
        self.world.say(pod.uid, kind)
        if kind == "fails":
            self._failed.add(pod.task)
            self._end(pod, self.world.rng.choice((1, 3, 134)))
        elif kind == "vanishes":
            self._pods.remove(pod)
        elif kind == "hangs":
            self._silent_from = self.world.now
        else:
            pod.ender = "somebody" if kind == "deleted" else "platform"

    def _end(self, pod: SimPod, code: int) -> None:
        self.world.say(pod.uid, "ends with", code)
        pod.runs, pod.code = False, code

    def _delete(self, ender: str) -> None:
        """Deletes all Jobs, and so their pods."""
        self._jobs.clear()
        for pod in self._pods:
            pod.ender = pod.ender or ender

    def _cancel(self) -> None:
        """Somebody deletes the Service, which all belongs to."""
        if self._watch.supervisor.expected is None:
            self.world.say("somebody deletes the Service")
            self._harmed = self._harmed or self.world.now
            self._exists, self._is_cancelled = False, True
            self._delete("somebody")

    def _stop(self) -> None:
        self.world.say("the user stops the job")
        self._stopped = self.world.now
        self._carry_out(self._watch.supervisor.stop(signal.SIGINT, self.world.now))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        """Does what the launcher's driver does."""
        watch = self._watch
        if watch.supervisor.expected is not None and not self._end_began:
            self._end_began = self.world.now
        for action in actions:
            self.world.say(action)
            if isinstance(action, Start):
                self._to_start.append(action.task)
                if self._end_began:
                    self._breach("nothing is started after the end begins", action.task)
            elif isinstance(action, Signal):
                watch.is_deleted = True
                self._delete("launcher")
                for pod in self._pods if action.signum == signal.SIGKILL else ():
                    self._end(pod, 137 if pod.code is None else pod.code)
        for task in [] if self._end_began else [*self._to_start]:
            self._jobs.discard(task)  # its pods go, and the controller makes one for the new Job
            for pod in self._pods:
                pod.ender = pod.ender or "launcher" * (pod.task == task)
            if task not in watch.held:
                self._jobs.add(task)
                self._to_start.remove(task)

    def _check(self, result: Optional[Result]) -> None:
        """Checks the end of the launcher."""
        if result is None:
            self._breach("the job ends within its limits", "it never ended")
            return
        secs = self.world.now - self._end_began
        limit = _LIMITS.grace_secs + 2 * overdue_secs(_LIMITS) + invariants.SETTLE_SECS
        if secs > limit + 4 * _POLL_SECS:
            self._breach("the job ends within its limits", f"after {secs:.1f} s")
        idle_secs = _LIMITS.idle_secs or 0
        is_true = {
            ExitReason.DONE: self._done > 0,
            ExitReason.USER: self._stopped > 0,
            ExitReason.TIME_LIMIT: self._end_began > self._heard + idle_secs,
            ExitReason.CANCELLED: self._is_cancelled,
            ExitReason.TASK_FAILED: result.task in self._failed,
            ExitReason.PLATFORM: self._harmed > 0 and result.task is not None,
        }
        if result.cause is None or not is_true[result.cause]:
            self._breach("what ends the job has happened", str(result))
        if (result.exit_code == 0) != (result.cause is ExitReason.DONE):
            self._breach("a failure is no success", str(result))
        was_ended = 0 < self._harmed <= self._done or self._stopped or self._is_cancelled
        if self._done and result.exit_code and not was_ended:
            self._breach("a success is no failure", str(result))
        if max(state.restarts for state in self._watch.states.values()) > self._restarts:
            self._breach("no task is restarted too often", str(result))
