"""What always holds, checked from what really happened in the world."""

import signal
from dataclasses import dataclass, field
from typing import Optional

from launch.cluster.model import Limits
from launch.record.result import Result
from tests.simulation.hosts import Process
from tests.simulation.world import World

KILL_SECS, SETTLE_SECS = 5.0, 2.0
_TOLD_SECS = 0.1  # from the end of a task until its agent tells of it
DONE, USER, PLATFORM, TERMINATED, HOST_LOST, SIGNAL, EXIT_CODE = range(7)  # the first counts most


@dataclass
class Report:
    """One report about the end of a job: its rank, and the exit code that it stands for."""

    time: float
    rank: int
    exit_code: int
    task: str = ""


def failure(time: float, code: Optional[int], task: str) -> Report:
    """Returns the report of a task that failed by itself."""
    if not code:
        return Report(time, EXIT_CODE, 1, task)
    exit_code = 128 - code if code < 0 else code
    return Report(time, SIGNAL if exit_code > 128 else EXIT_CODE, exit_code, task)


def first_cause(reports: list[Report]) -> Optional[Report]:
    """Returns the report of the highest rank in the moment after the first one."""
    if not reports:
        return None
    found = reports[0]
    for report in reports[1:]:
        in_time = report.time < reports[0].time + SETTLE_SECS and found.rank != DONE
        if in_time and report.rank < found.rank:
            found = report
    return found


@dataclass
class Ledger:
    """What has happened, and what was wrong with it.

    Attributes:
      broken: (name of the invariant, what has happened) of each breach.
      reports: what the launcher was told about the end.
      failed: the tasks that failed by themselves, as the launcher was told.
      paused_secs: how long the launcher stood still.
      end_began: when the job's end began.
      succeeded: when the launcher learned of the chief's success, if that is the expected.
      num_user_stops: how often the user, or a platform that did not say so, has asked for the end.
    """

    world: World
    limits: Limits
    broken: list[tuple[str, str]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    paused_secs: float = 0.0
    end_began: Optional[float] = None
    succeeded: Optional[float] = None
    num_user_stops: int = 0
    sigterm_sent: dict[str, float] = field(default_factory=dict)
    kill_sent: set[str] = field(default_factory=set)

    def breach(self, invariant: str, words: str) -> None:
        """Records a breach."""
        self.world.say("BROKEN", invariant, words)
        self.broken.append((invariant, words))

    def sent_start(self, task: str) -> None:
        """Checks an order to start a task."""
        self.sigterm_sent.pop(task, None)
        self.kill_sent.discard(task)
        if self.end_began is not None:
            self.breach("nothing is started after the end begins", task)

    def sent_signal(self, task: str, signum: int) -> None:
        """Checks a signal that the launcher sends to a task.

        Args:
          task: the task's name.
          signum: the signal.
        """
        now, grace = self.world.now, self.limits.grace_secs
        in_grace = self.succeeded is not None and now < self.succeeded + grace - 1e-6
        if in_grace and not self.num_user_stops and not task.startswith("ps"):
            self.breach("nobody is signalled in the grace after a success", task)
        if signum == signal.SIGKILL:
            self.kill_sent.add(task)
        if signum == signal.SIGTERM:
            self.sigterm_sent.setdefault(task, now)
        elif self.num_user_stops < 2:
            asked = self.sigterm_sent.get(task)
            if asked is None:
                self.breach("SIGTERM comes before SIGKILL", task)
            elif self._is_early(asked) and not task.startswith("ps"):
                self.breach("a task has its time to save", f"{task} after {now - asked:g} s")

    def _is_early(self, asked: float) -> bool:
        return self.world.now < asked + self.limits.stop_secs - 1e-6

    def signalled(self, process: Process, signum: int, sender: str) -> None:
        """Checks a signal that reaches a process."""
        if signum != signal.SIGKILL or sender != "its agent" or self.num_user_stops > 1:
            return
        if process.name in self.kill_sent:  # its host stood still while it had its time to end
            return
        if not any(got == signal.SIGTERM for got, _ in process.got):
            self.breach("SIGTERM comes before SIGKILL", f"{process.name} on its host")

    def told(self, process: Process) -> None:
        """Checks when an agent tells of the end of a process."""
        assert process.ended_at is not None
        secs = self.world.now - max(process.ended_at, process.host.frozen_until)
        if secs > _TOLD_SECS:
            self.breach("the end of a task is told at once", f"{process.name} after {secs:.1f} s")

    def check_outcome(self, result: Optional[Result], named: set[str], limit_secs: float) -> None:
        """Checks the result.

        Args:
          result: how the job ended, as the launcher says; None if it did not end.
          named: the tasks that the status names as failed.
          limit_secs: the sum of the limits for the end.
        """
        if self.end_began is None or result is None:
            self.breach("the job ends within its limits", "it never ended")
            return
        secs = self.world.now - self.end_began - self.paused_secs
        if secs > limit_secs:
            self.breach("the job ends within its limits", f"{secs:.1f} s, not {limit_secs:g} s")
        for name in sorted(self.failed - named):
            if name not in result.reason and not any(name in note for note in self.notes):
                self.breach("every task that failed by itself is named", name)
        cause = first_cause(self.reports)
        if cause is None or cause.exit_code != result.exit_code:
            self.breach("the exit code is the first cause's", f"{cause}, not {result}")
