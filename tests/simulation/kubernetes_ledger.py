"""The real follower of a TFJob, with a ledger of what it was told and of what really happened."""

from typing import TYPE_CHECKING, Any

from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.objects import TFJobState
from launch.backends.kubernetes.pods import Pod
from launch.record.outcome import Cause, Outcome
from tests.simulation import invariants
from tests.simulation.invariants import Report

if TYPE_CHECKING:
    from tests.simulation.kubernetes import KubernetesRun

_RANKS = {
    Cause.DONE: invariants.DONE, Cause.USER: invariants.USER, Cause.TIME_LIMIT: invariants.USER,
    Cause.CANCELLED: invariants.PLATFORM, Cause.PREEMPTED: invariants.PLATFORM,
    Cause.PLATFORM: invariants.PLATFORM, Cause.HOST_LOST: invariants.HOST_LOST,
}  # fmt: skip


def rank_of(outcome: Outcome) -> int:
    """Returns how near to the first cause an outcome is."""
    if outcome.cause is Cause.USER and outcome.exit_code == 143:
        return invariants.TERMINATED
    assert outcome.cause is not None
    failed = invariants.SIGNAL if outcome.exit_code > 128 else invariants.EXIT_CODE
    return _RANKS.get(outcome.cause, failed)


class WatchedFollower(Follower):
    """The real follower; the run learns what it is told, and checks what it says.

    Attributes:
      run: the run.
      reports: what was said or told about the end of the job.
      failed: the tasks whose pods were told to have failed by themselves.
      told_done: when it was told that the lead was done, if ever.
    """

    run: "KubernetesRun"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reports: list[Report] = []
        self.failed: set[str] = set()
        self.told_done: Any = None
        self._told_ends: set[str] = set()

    @property
    def knows_all_pods(self) -> bool:
        """Whether it knows which pods exist."""
        return self._pods.are_known

    def saw_pod(self, pod: Pod, now: float) -> list[str]:
        """Compares what a pod says with what the follower makes of it."""
        is_past = self._pods.is_past(pod.uid)
        had_failed = self.states[pod.task].status == "failed"
        num_reports, was_ending = len(self.reports), self.verdict is not None
        notes = super().saw_pod(pod, now)
        truth = self.run.cluster.pods[pod.uid]
        if pod.state != "ended" or is_past or pod.uid in self._told_ends:
            return notes
        self._told_ends.add(pod.uid)
        state = self.states[pod.task]
        # After the end was decided, any end of a deleted pod may be a consequence.
        is_consequence = was_ending and pod.deleted and not pod.is_oom
        is_disrupted = bool(pod.disruption) and pod.cause is not Cause.TASK_FAILED
        is_consequence |= had_failed or is_disrupted
        if truth.why == "done" and truth.is_lead:
            self._expect(Report(now, invariants.DONE, 0, pod.task))
        elif truth.why == "own" and not is_consequence:
            if self.outcome is None:
                self.failed.add(pod.task)
            if was_ending or state.status != "restarting":
                is_muddled = pod.deleted and pod.code in (137, 143) and not pod.is_oom
                if not is_muddled and len(self.reports) == num_reports:
                    self._expect(invariants.failure(now, pod.code, pod.task))
        elif truth.why == "disrupted" and (was_ending or state.status != "restarting"):
            code = invariants.failure(now, pod.code, pod.task).exit_code
            if len(self.reports) == num_reports:
                self._expect(Report(now, rank_of(Outcome(code, "", cause=pod.cause)), code))
        return notes

    def _expect(self, report: Report) -> None:
        """Adds what the follower should have reported."""
        self.reports.append(report)
        if report.rank == invariants.DONE and self.told_done is None:
            self.told_done = report.time

    def saw_tfjob(self, job: TFJobState, now: float) -> None:
        """Records what the TFJob says."""
        if job.succeeded:
            self._expect(Report(now, invariants.DONE, 0))
        is_news = job.deleted and not self._is_ours
        super().saw_tfjob(job, now)
        if is_news:
            self.reports.append(Report(now, invariants.PLATFORM, 1))

    def tfjob_gone(self, now: float) -> None:
        """Records that the TFJob is gone."""
        if not self._is_ours:
            self.reports.append(Report(now, invariants.PLATFORM, 1))
        super().tfjob_gone(now)

    def stop(self, reason: str, exit_code: int, now: float) -> None:
        """Records that the user stops the job."""
        rank = invariants.TERMINATED if exit_code == 143 else invariants.USER
        self.reports.append(Report(now, rank, exit_code))
        super().stop(reason, exit_code, now)

    def _report(self, outcome: Outcome, now: float) -> bool:
        """Checks what the follower says, and records it."""
        self.run.world.say("report:", outcome.exit_code, outcome.reason, outcome.cause)
        self.run.check_report(outcome)
        if outcome.cause is not Cause.USER:
            self.reports.append(
                Report(now, rank_of(outcome), outcome.exit_code, outcome.task or "")
            )
        is_first = self.verdict is None
        took = super()._report(outcome, now)
        if is_first:
            self.run.end_began = now
        return took
