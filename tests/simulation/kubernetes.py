"""A job in a simulated Kubernetes, which the real runner and follower follow to its end."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Optional, cast

import pytest

from launch.backends.kubernetes import backend
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import JobObjects, Kubectl
from launch.backends.kubernetes.manifests import overdue_secs
from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Task
from launch.errors import HostError
from launch.record.outcome import Cause, Outcome
from tests.simulation import invariants
from tests.simulation.kubernetes_cluster import Cluster, SimPod
from tests.simulation.kubernetes_faults import draw_faults
from tests.simulation.world import World

_TICK_SECS = 0.5
_CALL_SECS = 15.5  # of the longest call of kubectl
_SOON_SECS = 7.0  # the launcher tries to delete the job every 5 s
_NOTICE_SECS = 26.0  # for a poll that waits, and the word of a pod after that of its job
_APART_SECS = 8.0  # for a poll, and the moment in which reports replace each other
_LONGEST_SECS = 900.0
_LIMITS = Limits(start_secs=60, idle_secs=30, grace_secs=8, stop_secs=6)
_TIMEOUT_SECS = 15.0


class SimKubectl(Kubectl):
    """kubectl for a simulated cluster: its calls take time, and fail while the API is down.

    Attributes:
      down_until: when the API server answers again.
      was_down: whether it ever did not answer.
      deleted: when the launcher first asked for the job's deletion, whether it worked or not.
      on_delete: called when the launcher asks for the job's deletion.
    """

    def __init__(self, world: World, cluster: Cluster) -> None:
        super().__init__("sim", "lab")
        self.down_until = 0.0
        self.was_down = False
        self.deleted: Optional[float] = None
        self.on_delete: Callable[[], None] = lambda: None
        self._world, self._cluster = world, cluster

    @property
    def is_down(self) -> bool:
        """Whether the API server does not answer."""
        return self._world.now < self.down_until

    def go_down(self, secs: float) -> None:
        """Lets the API server answer nobody for a while."""
        self._world.say("the API does not answer for", secs)
        self.was_down = True
        self.down_until = self._world.now + secs

    def delay(self) -> float:
        """Returns how long an answer or its failure takes."""
        rng = self._world.rng
        return rng.choice((0.2, _TIMEOUT_SECS) if self.is_down else (0.0, 0.05, 0.5))

    def __call__(self, *words: str, given: str = "", timeout_secs: float = 60.0) -> str:
        """Answers one call, during which the launcher does nothing else."""
        is_down = self.is_down
        self._wait(self.delay())
        arrives = not is_down or self._world.rng.random() < 0.2
        answer = self._do(words, given) if arrives else ""
        if is_down:
            raise HostError(f"kubectl {words[0]}: no answer")
        self._wait(self.delay())
        return answer

    def _wait(self, secs: float) -> None:
        self._world.run(self._world.now + secs, lambda: False)

    def _do(self, words: tuple[str, ...], given: str) -> str:
        cluster = self._cluster
        if "--output=name" in words:  # what is left of a job that was stopped
            return ""
        if words[0] == "get":  # the pods are listed first
            pods = [pod.as_object() for pod in cluster.existing()]
            self._wait(self._world.rng.choice((0.0, 0.02, 0.3)))
            return json.dumps({"kind": "List", "items": [*pods, *cluster.as_objects()]})
        if words[0] == "create":
            found = json.loads(given)
            if found["kind"] == "Service":
                cluster.create()
            else:
                cluster.create_jobs([one["metadata"]["name"] for one in found["items"]])
            return "uid"
        if words[0] == "delete" and words[1] == "pods":
            for pod in list(cluster.pods.values()):
                cluster.delete(pod, "launcher", 1.0)
        elif words[0] == "delete" and words[1] in ("jobs.batch", "services"):
            self._world.say("the launcher deletes the", words[1])
            self.on_delete()
            self.deleted = self._world.now if self.deleted is None else self.deleted
            for task in list(cluster.jobs):
                cluster.delete_job(task, "launcher")
            if words[1] == "services":
                cluster.delete_all("launcher")
        elif words[0] == "delete":
            cluster.delete_job(words[1].removeprefix("jobs.batch/"), "launcher")
        return ""


class SimLogs:
    """Logs that are read or not, by chance."""

    one_ended, refusal = False, None

    def __init__(self, world: World) -> None:
        self._world = world

    def follow(self, pods: Sequence[Any]) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    @property
    def are_complete(self) -> bool:
        """Whether the logs of ended pods are read."""
        return self._world.rng.random() < 0.5


class KubernetesRun:
    """One job, its launcher's run loop, and what always holds, checked from what really happened.

    Attributes:
      broken: (name of the invariant, what has happened) of each breach.
      end_began: when the end was decided.
      paused_secs: how long the launcher stood still in all.
      signals: the signals for the launcher.
      stopped: when the launcher heeded the first one that stops the job.
      heard: when the launcher took the newest line of a task.
      has_stepped: whether it has taken any.
      is_left: whether the launcher was left by SIGHUP.
      paused_until: until when the launcher stands still.
    """

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.broken: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.signals: list[int] = []
        self.end_began: Optional[float] = None
        self.stopped: Optional[float] = None
        self.paused_secs = self.heard = 0.0
        self.has_stepped = self.is_left = False
        self.world = World(seed, traces=traces)
        rng = self.world.rng
        self.limits = _LIMITS
        self._tasks = self._draw_tasks()
        self.restarts = rng.choice((0, 0, 1, 3))
        self.cluster = Cluster(
            self.world, [task.name for task in self._tasks], self.limits, self.restarts
        )
        self.cluster.on_line = self._wrote
        self.kubectl = SimKubectl(self.world, self.cluster)
        self.kubectl.on_delete = self.check_deletion
        self.paused_until = 0.0
        self._num_heeded = 0
        self._is_handling = False
        self._queue: list[Callable[[], None]] = []
        self.events: Any = self
        self._verdict = cast(Optional[Outcome], None)
        draw_faults(self)

    def _draw_tasks(self) -> list[Task]:
        rng = self.world.rng
        lead = rng.choice(("master", "chief"))
        types = [lead, *["worker"] * rng.choice((0, 1, 2)), *["ps"] * rng.choice((1, 1, 2))]
        types += ["evaluator"] * (lead == "chief" and rng.random() < 0.5)
        counts = dict.fromkeys(types, 0)
        tasks: list[Task] = []
        for one in types:
            host = Host(f"h{len(tasks)}", "", (), workdir="/data")
            tasks.append(Task(one, counts[one], host, None, Devices(), "{}", ()))
            counts[one] += 1
        return tasks

    def run(self) -> "KubernetesRun":
        """Runs until the follower has ended; returns this run, with what was wrong."""
        with self._as_kubernetes():
            tasks, limits = self._tasks, self.limits
            self.follower = Follower(tasks, limits, self.restarts, 0.0)
            manifest: Any = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "sim"}}
            jobs: Any = {task.name: {"metadata": {"name": task.name}} for task in tasks}
            created = JobObjects(self.kubectl, "sim")
            self._runner = backend.Runner(created, self.follower, cast(Any, self), [], jobs)
            try:
                created.create(manifest, [*jobs.values()], {})
            except HostError:  # The API has stopped answering, so that there is no job to follow.
                self._runner.end("run", is_left=False)
                return self
            self._tick()
            self.world.run(_LONGEST_SECS, lambda: self.is_over)
            self.world.say("outcome:", "left" if self.is_left else self.follower.outcome)
            self.check_end()
            self._runner.end("run", is_left=self.is_left)
            self.check_that_nothing_is_left()
        return self

    @contextmanager
    def _as_kubernetes(self) -> Iterator[None]:
        clock = SimpleNamespace(monotonic=lambda: self.world.now)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "time", clock)
            patch.setattr(backend, "PodLogs", lambda *_: SimLogs(self.world))
            yield

    def _wrote(self, pod: SimPod) -> None:
        if not self.kubectl.is_down:
            take = partial(self.take_lines, pod.task, pod.node, [f"{pod.uid} says"])
            self.world.later(self.world.rng.choice((0.0, 0.5)), self.put, take)

    # What follows is `RunLoop`.

    def note(self, *texts: str) -> None:
        """Takes notes for the user."""
        for text in texts:
            self.world.say("note:", text)
            self.notes.append(text)

    def take_lines(self, task: str, host: str, lines: Any) -> None:
        """Takes lines of a task."""
        self.heard, self.has_stepped = self.world.now, True
        self.follower.heard(self.world.now, stepped=True)

    def signal(self, signum: int) -> None:
        """Takes a signal for the launcher."""
        self.world.say("launcher gets", signal.Signals(signum).name)
        self.signals.append(signum)

    def put(self, event: Callable[[], None], timeout: float = 0.0) -> None:
        """Takes what a thread puts into the queue."""
        self._queue.append(event)
        self._work()

    def _work(self) -> None:
        """Does what the launcher's loop does, unless it waits for kubectl or stands still."""
        is_waiting = self._is_handling or self.world.now < self.paused_until
        if is_waiting or self.is_over:
            return
        self._is_handling = True
        try:
            while self._queue:
                self._runner.handle(self._queue.pop(0))
                self._look()
            for signum in self.signals[self._num_heeded :]:
                self._num_heeded += 1
                if signum != signal.SIGHUP and self.stopped is None:
                    self.stopped = self.world.now
                self._runner.stop(signum)
                self._look()
            self._runner.tick(self.world.now)
            self._look()
        except backend.Left:
            self.is_left = True
        finally:
            self._is_handling = False

    def _look(self) -> None:
        """Checks a new verdict."""
        before, self._verdict = self._verdict, self.follower.verdict
        if self._verdict is not None and self._verdict != before:
            if before is None:
                self.end_began = self.world.now
            self.world.say("verdict:", self._verdict)
            self.check_report(self._verdict)

    def _tick(self) -> None:
        self._work()
        self.world.later(_TICK_SECS, self._tick)

    # What follows are the checks.

    @property
    def is_over(self) -> bool:
        """Whether the launcher has ended."""
        return self.is_left or self.follower.outcome is not None

    def breach(self, invariant: str, words: str) -> None:
        """Records a breach."""
        self.world.say("BROKEN", invariant, words)
        self.broken.append((invariant, words))

    def check_report(self, outcome: Outcome) -> None:
        """Checks a report of the follower against what really happened."""
        now, cluster, limits = self.world.now, self.cluster, self.limits
        idle, start = limits.idle_secs or 0, limits.start_secs or 0
        is_true = {
            Cause.DONE: cluster.done is not None,
            Cause.USER: any(signum != signal.SIGHUP for signum in self.signals),
            Cause.TIME_LIMIT: now > self.heard + idle if self.has_stepped else now > start,
            Cause.PLATFORM: outcome.task is not None,
            Cause.CANCELLED: "somebody" in cluster.enders,
        }
        if not is_true.get(outcome.cause, cluster.harmed is not None):  # type: ignore[arg-type]
            self.breach("what ends the job has happened", outcome.reason)

    def check_deletion(self) -> None:
        """Checks that the launcher may ask for the deletion now."""
        follower, lead = self.follower, self.cluster.lead
        if self.is_over or self.stopped is not None:
            return
        verdict = follower.verdict
        is_done = verdict is not None and verdict.cause is Cause.DONE
        is_timeout = verdict is not None and verdict.cause is Cause.TIME_LIMIT
        has_reason = (self.cluster.done if is_done else self.cluster.harmed) is not None
        may_delete = is_timeout or has_reason
        if lead is not None and lead.runs and not lead.ender and not may_delete:
            self.breach("the job is not deleted while its lead runs", lead.uid)

    def check_end(self) -> None:
        """Checks the end of the launcher."""
        outcome = self.follower.outcome
        if self.is_left:
            return
        if outcome is None or self.end_began is None:
            self.breach("the job ends within its limits", "it never ended")
            return
        secs = self.world.now - self.end_began - self.paused_secs
        if secs > self._limit_secs(outcome):
            self.breach("the job ends within its limits", f"after {secs:.1f} s")
        began = max(self.cluster.sealed, min(self.kubectl.down_until, self.end_began))
        if self.end_began > began + _NOTICE_SECS + self.paused_secs:
            self.breach("what ends the job is known soon", f"{began}, {self.end_began}")
        self._check_stop()
        self._check_restarts()
        self._check_cause(outcome)
        self._check_first_failure(outcome)
        self._check_success(outcome)

    def _limit_secs(self, outcome: Outcome) -> float:
        """Returns the sum of the limits of an end.

        That is the grace after a success, the time in which the deletion is tried, the time for
        pods to end after it, the settling, and what a look and a deletion without answers take.
        """
        grace = 0 if outcome.exit_code else self.limits.grace_secs
        calls = 4 * _CALL_SECS + 2 * _TICK_SECS
        return grace + 2 * overdue_secs(self.limits) + invariants.SETTLE_SECS + calls

    def _check_stop(self) -> None:
        """Checks that the job is deleted soon after a signal of the user."""
        if self.stopped is None or self.kubectl.down_until > self.stopped:
            return
        deleted = self.kubectl.deleted
        soon = self.stopped + _SOON_SECS + self.paused_secs
        if (self.world.now if deleted is None else deleted) > soon:
            self.breach("a stop deletes the job soon", f"{self.stopped}, {deleted}")

    def _check_restarts(self) -> None:
        for name, state in self.follower.states.items():
            if state.restarts > self._num_ends(name):
                words = f"{name}: {state.restarts} of {self._num_ends(name)}"
                self.breach("an end is counted once", words)

    def _num_ends(self, task: str) -> int:
        pods = [pod for pod in self.cluster.pods.values() if pod.task == task]
        return sum(pod.has_ended or not pod.exists or bool(pod.ender) for pod in pods)

    def _check_cause(self, outcome: Outcome) -> None:
        pods = self.cluster.pods.values()
        failed = {pod.task for pod in pods if pod.why == "own"}
        if outcome.cause is Cause.TASK_FAILED and outcome.task and outcome.task not in failed:
            self.breach("who was deleted or drained has not failed", str(outcome))

    def _check_first_failure(self, outcome: Outcome) -> None:
        """Checks that a failure is the job's cause where nothing else happened near it."""
        cluster = self.cluster
        failures = [(at, pod) for at, pod in cluster.ends if pod.why == "own" and pod.code]
        near: list[Any] = [self.signals, self.restarts, self.paused_secs, cluster.done]
        others, pods = ("platform", "somebody"), cluster.pods.values()
        near += [one.why == "disrupted" or one.ender in others for one in pods]
        if not failures or self.kubectl.was_down or any(near):
            return
        (at, pod), *later = failures
        is_first = cluster.harmed == at and self.end_began is not None and self.end_began >= at
        is_alone = (
            not (later and later[0][0] < at + _APART_SECS) and "somebody" not in cluster.enders
        )
        code = invariants.failure(at, pod.code, pod.task).exit_code
        if is_first and is_alone and (outcome.task, outcome.exit_code) != (pod.task, code):
            self.breach("a failure that comes alone is the cause", f"{pod.task} {code}: {outcome}")

    def _check_success(self, outcome: Outcome) -> None:
        cluster = self.cluster
        if outcome.exit_code == 0 and cluster.done is None:
            self.breach("a failure is no success", str(outcome))
        done = cluster.done
        is_first = done is not None and (cluster.harmed is None or done < cluster.harmed)
        was_stopped = self.stopped is not None or "somebody" in cluster.enders
        was_unknown = outcome.cause is Cause.TIME_LIMIT and self.kubectl.was_down
        if is_first and outcome.exit_code and not was_stopped and not was_unknown:
            self.breach("a success is no failure", str(outcome))

    def check_that_nothing_is_left(self) -> None:
        """Checks that the job is deleted, or that the user was told how to do it, or left it."""
        if self.is_left and self.kubectl.deleted is not None:
            self.breach("a lost terminal leaves the job alone", "the job was deleted")
        is_told = any("clean" in note for note in self.notes)
        if self.cluster.exists and not self.is_left and not is_told:
            self.breach("the job is deleted at the end", "it exists, and nobody was told")
