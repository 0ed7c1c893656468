"""Followers of a TFJob that are broken on purpose, each of which must break an invariant."""

import math
import signal
from typing import Any

import pytest

from launch.backends.kubernetes import follow
from launch.backends.kubernetes.current_pods import CurrentPods
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.pod_list import PodList
from launch.backends.kubernetes.runner import Runner
from launch.backends.kubernetes.tfjob import TFJob
from launch.record.outcome import Cause
from tests.simulation.broken import Break, believes_the_first_report, believes_the_last_report


def names_only_the_first(patch: pytest.MonkeyPatch) -> None:
    """Says nothing of a task that fails while the job ends."""
    patch.setattr(Follower, "_fails_too", lambda self, state, now: [])


def blames_the_deleted(patch: pytest.MonkeyPatch) -> None:
    """Takes a pod that somebody has deleted for a task that has failed."""
    init = Follower.__init__

    class Nobody(set[str]):
        def add(self, name: str) -> None:
            """Forgets a name."""

    def forgets(self: Follower, *arguments: Any) -> None:
        init(self, *arguments)
        self._taken = Nobody()

    patch.setattr(Follower, "__init__", forgets)


def blames_the_lost(patch: pytest.MonkeyPatch) -> None:
    """Takes a pod whose end was not seen for a task that has failed."""
    judge = Follower._judge

    def blames(self: Follower, state: Any, code: Any, words: str, cause: Cause, now: float) -> Any:
        cause = Cause.TASK_FAILED if cause is Cause.HOST_LOST else cause
        return judge(self, state, code, words, cause, now)

    patch.setattr(Follower, "_judge", blames)


def believes_old_news(patch: pytest.MonkeyPatch) -> None:
    """Fails a pod that was stuck before an outage, and whose state is not known any more."""
    patch.setattr(CurrentPods, "watch_ended", lambda self: None)


def believes_every_suspension(patch: pytest.MonkeyPatch) -> None:
    """Takes a queue that holds the job back for somebody who suspends it."""
    saw = Follower.saw_tfjob

    def believes(self: Follower, job: Any, now: float) -> None:
        saw(self, job, now)
        if job.suspended and self._pods.are_known:
            self._report(follow._SUSPENDED, now)

    patch.setattr(Follower, "saw_tfjob", believes)


def does_not_look(patch: pytest.MonkeyPatch) -> None:
    """Deletes the TFJob without a look at whether it is done."""
    patch.setattr(Follower, "is_disputed", False)


def forgets_a_success_after_the_deletion(patch: pytest.MonkeyPatch) -> None:
    """Does not count the success of a lead once the deletion was asked for."""
    ended = Follower._ended

    def forgets(self: Follower, state: Any, pod: Any, now: float) -> Any:
        is_late = self._is_ours and state.task.is_lead and pod.code == 0
        return [] if is_late else ended(self, state, pod, now)

    patch.setattr(Follower, "_ended", forgets)


def gives_no_grace(patch: pytest.MonkeyPatch) -> None:
    """Deletes the TFJob as soon as the lead is done."""
    patch.setattr(
        Follower,
        "wants_deletion",
        lambda self, now: self.verdict is not None and self._deleted is None,
    )


def makes_a_user_wait(patch: pytest.MonkeyPatch) -> None:
    """Keeps the grace after a success though the user stops the job."""
    stop = Follower.stop

    def waits(self: Follower, *arguments: Any) -> None:
        stop(self, *arguments)
        self._is_stopped = False

    patch.setattr(Follower, "stop", waits)


def ends_with_the_workers(patch: pytest.MonkeyPatch) -> None:
    """Deletes the TFJob when a worker is done."""
    wants = Follower.wants_deletion

    def ends(self: Follower, now: float) -> bool:
        is_done = self.states["worker/0"].code == 0 if "worker/0" in self.states else False
        return is_done or wants(self, now)

    patch.setattr(Follower, "wants_deletion", ends)


def waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Waits for pods on nodes that are lost."""
    patch.setattr(follow, "overdue_secs", lambda limits: math.inf)


def never_lists(patch: pytest.MonkeyPatch) -> None:
    """Does not ask which pods are gone after a watch has ended."""
    patch.setattr(PodList, "ask", lambda self: None)


def does_not_hear_of_the_end(patch: pytest.MonkeyPatch) -> None:
    """Overlooks that the TFJob does not exist any more."""
    patch.setattr(Runner, "_look", lambda self, now: None)
    gone = Follower.tfjob_gone
    patch.setattr(
        Follower, "tfjob_gone", lambda self, now: gone(self, now) if self.verdict else None
    )


def counts_twice(patch: pytest.MonkeyPatch) -> None:
    """Counts the end of a pod again when its successor comes."""
    patch.setattr(CurrentPods, "finds", lambda self, task: task in self._missing)


def hangup_stops(patch: pytest.MonkeyPatch) -> None:
    """Stops the job when the terminal is lost."""
    stop = Runner.stop

    def stops(self: Runner, signum: int, count: int) -> None:
        stop(self, signal.SIGINT if signum == signal.SIGHUP else signum, count)

    patch.setattr(Runner, "stop", stops)


def leaves_the_tfjob(patch: pytest.MonkeyPatch) -> None:
    """Deletes nothing."""
    patch.setattr(TFJob, "delete", lambda self: True)
    patch.setattr(TFJob, "remove", lambda self, run_id: None)


# What is broken -> words of the invariant that it breaks.
BROKEN_IN_KUBERNETES: dict[Break, str] = {
    names_only_the_first: "every task that failed by itself is named",
    blames_the_deleted: "who was deleted or drained has not failed",
    blames_the_lost: "who was deleted or drained has not failed",
    believes_old_news: "who was deleted or drained has not failed",
    believes_the_first_report: "the exit code is the first cause's",
    believes_the_last_report: "the exit code is the first cause's",
    believes_every_suspension: "what ends the job has happened",
    does_not_look: "a deletion by somebody is named",
    forgets_a_success_after_the_deletion: "the exit code is the first cause's",
    gives_no_grace: "nobody is deleted in the grace after a success",
    makes_a_user_wait: "a stop deletes the job soon",
    ends_with_the_workers: "the job is not deleted while its lead runs",
    waits_for_ever: "the job ends within its limits",
    never_lists: "an end that has come is confirmed",
    does_not_hear_of_the_end: "what ends the job is known soon",
    counts_twice: "an end is counted once",
    hangup_stops: "what ends the job has happened",
    leaves_the_tfjob: "the TFJob is deleted at the end",
}
