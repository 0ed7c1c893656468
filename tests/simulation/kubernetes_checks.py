"""What always holds in a job of Kubernetes, checked from what really happened."""

import signal
from typing import TYPE_CHECKING, Any, Optional

from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.manifests import overdue_secs
from launch.cluster.model import Limits
from launch.record.outcome import Cause, Outcome
from tests.simulation import invariants
from tests.simulation.kubernetes_cluster import Cluster
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.kubernetes import SimKubectl

TICK_SECS = 0.5
_CALL_SECS = 15.5  # of the longest call of kubectl
_SOON_SECS = 7.0  # the launcher tries to delete the TFJob every 5 s
_APART_SECS = 8.0  # for a poll, and the moment in which reports replace each other


class Checks:
    """The checks of one run.

    Attributes:
      broken: (name of the invariant, what has happened) of each breach.
      end_began: when the end was decided.
      paused_secs: how long the launcher stood still in all.
      signals: the signals for the launcher.
      stopped: when the launcher heeded the first one that stops the job.
      heard: when the launcher took the newest line of a task.
      has_stepped: whether it has taken any.
      is_left: whether the launcher was left by SIGHUP.
    """

    world: World
    cluster: Cluster
    kubectl: "SimKubectl"
    follower: Follower
    limits: Limits
    restarts: int

    def __init__(self) -> None:
        self.broken: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.signals: list[int] = []
        self.end_began: Optional[float] = None
        self.stopped: Optional[float] = None
        self.paused_secs = self.heard = 0.0
        self.has_stepped = self.is_left = False

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
        if self.is_left:
            self.breach("a lost terminal leaves the job alone", "the TFJob was deleted")
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
            if self.kubectl.deleted is not None:
                self.breach("a lost terminal leaves the job alone", "the TFJob was deleted")
            return
        if outcome is None or self.end_began is None:
            self.breach("the job ends within its limits", "it never ended")
            return
        secs = self.world.now - self.end_began - self.paused_secs
        if secs > self._limit_secs(outcome):
            self.breach("the job ends within its limits", f"after {secs:.1f} s")
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
        calls = 4 * _CALL_SECS + 2 * TICK_SECS
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
        return sum(pod.has_ended or not pod.exists or pod.condition is not None for pod in pods)

    def _check_cause(self, outcome: Outcome) -> None:
        pods = self.cluster.pods.values()
        failed = {pod.task for pod in pods if pod.why == "own"}
        if outcome.cause is Cause.TASK_FAILED and outcome.task and outcome.task not in failed:
            self.breach("who was deleted or drained has not failed", str(outcome))

    def _check_first_failure(self, outcome: Outcome) -> None:
        """Checks that a failure is the job's cause where nothing else happened near it."""
        cluster, kubectl = self.cluster, self.kubectl
        failures = [(at, pod) for at, pod in cluster.ends if pod.why == "own" and pod.code]
        near: list[Any] = [
            self.signals,
            self.restarts,
            self.paused_secs,
            cluster.done,
            kubectl.was_down,
        ]
        pods = cluster.pods.values()
        others = ("platform", "somebody")
        is_disrupted = any(one.why == "disrupted" or one.ender in others for one in pods)
        if not failures or is_disrupted or any(near):
            return
        (at, pod), *later = failures
        is_first = cluster.harmed == at and self.end_began is not None and self.end_began >= at
        is_alone = not (later and later[0][0] < at + _APART_SECS) and {*cluster.enders} <= {
            "launcher"
        }
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
        """Checks that the TFJob is deleted, or that the user was told how to do it."""
        is_told = any("clean" in note for note in self.notes)
        if self.cluster.exists and not self.is_left and not is_told:
            self.breach("the TFJob is deleted at the end", "it exists, and nobody was told")
