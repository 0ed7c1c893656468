"""A job in a simulated Kubernetes, which the real runner and follower follow to its end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from launch.backends.kubernetes import logs, pod_list, runner, tfjob, watches
from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Task
from tests.simulation.kubernetes_api import SimKubectl
from tests.simulation.kubernetes_checks import TICK_SECS, Checks
from tests.simulation.kubernetes_faults import draw_faults
from tests.simulation.kubernetes_ledger import WatchedFollower
from tests.simulation.kubernetes_operator import Cluster
from tests.simulation.world import World

_LONGEST_SECS = 900.0
_LIMITS = Limits(start_secs=60, idle_secs=30, grace_secs=8, stop_secs=6)


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
        self.kubectl = SimKubectl(self.world, self.cluster)
        self.kubectl.on_delete = self.check_deletion
        self.paused_until = 0.0
        self._num_heeded = 0
        self._is_handling = False
        self._lines: set[str] = set()
        self._queue: list[Any] = []
        self.events = SimpleNamespace(put=self._arrive)
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
            self.follower = WatchedFollower(self._tasks, self.limits, self.restarts, 0.0)
            self.follower.run = self
            manifest: Any = {"kind": "TFJob", "metadata": {"name": "sim"}}
            helper = {"kind": "Secret", "metadata": {"name": "sim-environment"}}
            objects = tfjob.TFJob(self.kubectl, manifest, [helper], self.note)
            loop: Any = self
            self._runner = runner.Runner(self.kubectl, objects, self.follower, loop, [])
            self._runner.start()
            self._tick()
            self.world.run(_LONGEST_SECS, lambda: self.is_over)
            self.world.say("outcome:", "left" if self.is_left else self.follower.outcome)
            self.check_end()
            self._runner.close()
            if not self.is_left:
                objects.remove("run")
            self.check_that_nothing_is_left()
        return self

    @contextmanager
    def _as_kubernetes(self) -> Iterator[None]:
        clock = SimpleNamespace(monotonic=lambda: self.world.now)
        open_stream = self.kubectl.open
        with pytest.MonkeyPatch.context() as patch:
            for module in (runner, logs):
                patch.setattr(module, "time", clock)
            for one in (watches, pod_list, logs):
                patch.setattr(one, "Stream", open_stream)
            yield

    # What follows is `RunLoop`.

    def note(self, *texts: str) -> None:
        """Takes notes for the user."""
        for text in texts:
            self.world.say("note:", text)
            self.notes.append(text)

    def take_lines(self, task: str, host: str, lines: Any) -> None:
        """Takes lines of a task."""
        for line in lines:
            if line in self._lines:
                self.breach("a line is taken once", line)
            self._lines.add(line)
        self.heard, self.has_stepped = self.world.now, True
        self.follower.heard(self.world.now, stepped=True)

    def signal(self, signum: int) -> None:
        """Takes a signal for the launcher."""
        self.world.say("launcher gets", signal.Signals(signum).name)
        self.signals.append(signum)

    def _arrive(self, event: Any, timeout: float) -> None:
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
            for signum in self.signals[self._num_heeded :]:
                self._num_heeded += 1
                if signum != signal.SIGHUP and self.stopped is None:
                    self.stopped = self.world.now
                self._runner.stop(signum, self._num_heeded)
            self._runner.tick(self.world.now)
        except runner.Left:
            self.is_left = True
        finally:
            self._is_handling = False

    def _tick(self) -> None:
        self._work()
        self.world.later(TICK_SECS, self._tick)
