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
from launch.backends.kubernetes.kubectl import TFJOB, JobObjects, Kubectl
from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Task
from launch.errors import HostError
from launch.record.outcome import Outcome
from tests.simulation.kubernetes_checks import TICK_SECS, Checks
from tests.simulation.kubernetes_cluster import Cluster, SimPod
from tests.simulation.kubernetes_faults import draw_faults
from tests.simulation.world import World

_LONGEST_SECS = 900.0
_LIMITS = Limits(start_secs=60, idle_secs=30, grace_secs=8, stop_secs=6)
_TIMEOUT_SECS = 15.0


class SimKubectl(Kubectl):
    """kubectl for a simulated cluster: its calls take time, and fail while the API is down.

    Attributes:
      down_until: when the API server answers again.
      was_down: whether it ever did not answer.
      deleted: when the launcher first asked for the TFJob's deletion, whether it worked or not.
      on_delete: called when the launcher asks for the TFJob's deletion.
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
        if words[0] == "get":  # the pods are listed first
            pods = [pod.as_object() for pod in cluster.existing()]
            self._wait(self._world.rng.choice((0.0, 0.02, 0.3)))
            jobs = [cluster.tfjob()] if cluster.exists else []
            return json.dumps({"kind": "List", "items": [*pods, *jobs]})
        if words[0] == "create":
            if json.loads(given)["kind"] == "TFJob":
                cluster.create()
            return "uid"
        if words[0] == "delete" and words[1] == "pods":
            for pod in list(cluster.pods.values()):
                cluster.delete(pod, "launcher", 1.0)
        elif words[0] == "delete" and "tfjobs" in words[1]:
            self._world.say("the launcher deletes the TFJob")
            self.on_delete()
            self.deleted = self._world.now if self.deleted is None else self.deleted
            return cluster.delete_job("launcher")
        return ""


class SimLogs:
    """Logs that are read or not, by chance."""

    one_ended = False

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


class KubernetesRun(Checks):
    """One job, and its launcher's run loop.

    Attributes:
      paused_until: until when the launcher stands still.
    """

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        super().__init__()
        self.world = World(seed, traces=traces)
        rng = self.world.rng
        self.limits = _LIMITS
        self._tasks = self._draw_tasks()
        self.restarts = rng.choice((0, 0, 1, 3))
        self.cluster = Cluster(self.world, [task.name for task in self._tasks], self.limits)
        self.cluster.makes_anew = self.restarts > 0
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
            self.follower = Follower(tasks, limits, self.restarts, 0.0, is_tfjob=True)
            manifest: Any = {"apiVersion": "v1", "kind": "TFJob", "metadata": {"name": "sim"}}
            created = JobObjects(self.kubectl, TFJOB, "sim")
            self._runner = backend.Runner(created, self.follower, cast(Any, self), [], {})
            try:
                created.create(manifest, [])
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
        self.world.later(TICK_SECS, self._tick)
