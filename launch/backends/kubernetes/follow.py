"""Decides how a job continues and ends, from what polls show of its pods and from the time.

Nothing here has side effects outside its objects: `launch.backends.kubernetes.run` polls, and
carries out what is decided here. What happens between two polls is seen only by what it leaves: a
pod that is gone, or another one in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Optional

from launch.backends.kubernetes.manifests import job_name, overdue_secs
from launch.backends.kubernetes.state import Pod, Poll
from launch.cluster.model import Limits
from launch.cluster.tasks import Task
from launch.record.outcome import Cause, Outcome, exit_code_of
from launch.supervise.ending import Settling
from launch.supervise.supervisor import ProgressWatch, TaskState

_STUCK_SECS = 60.0  # an image's registry may need a second try
_FIRST_SIGNAL = 128  # for exit codes from here on, the operator recreates the pod
_MISTAKE = 2  # the exit code for errors of the user, which a restart would only repeat
_LONGEST_BACKOFF_SECS = 30.0
_LATE = 124  # the exit code for a time limit


class Follower:
    """Follows one job.

    Args:
      name: the name of the job.
      tasks: all tasks of the job.
      limits: the job's time limits.
      restarts: how often each task's pod may be replaced.
      now: the time at which the job starts, in seconds, on the same clock as all later times.
      is_tfjob: whether the training operator makes pods anew; otherwise `due` says when to do it.

    Attributes:
      states: task's name -> its state.
      outcome: the verdict, once it is final, and all pods have ended or are overdue; None before.
    """

    def __init__(
        self,
        name: str,
        tasks: Sequence[Task],
        limits: Limits,
        restarts: int,
        now: float,
        *,
        is_tfjob: bool = True,
    ) -> None:
        self.states = {
            task.name: TaskState(replace(task, host=replace(task.host, name="-"))) for task in tasks
        }
        self.outcome: Optional[Outcome] = None
        self._name, self._limits = name, limits
        self._restarts, self._is_tfjob = restarts, is_tfjob
        self._progress = ProgressWatch(limits, now)
        self._settling = Settling()
        self._pods: Sequence[Pod] = ()  # those of the last poll
        self._newest: dict[str, Pod] = {}  # task's name -> its newest pod
        self._past: set[str] = set()  # uids of pods whose end is known
        self._stuck: dict[str, float] = {}  # pod's uid -> when it was first seen stuck
        self._has_failed = False  # whether a poll has shown that the TFJob has failed
        self._grace_secs = limits.grace_secs  # for tasks to end by themselves, after a success
        self._grace_until = 0.0
        self._deleted: Optional[float] = None  # when somebody first asked for the job's deletion
        self._has_ended = False  # whether a poll after that has shown that no pod runs

    @property
    def verdict(self) -> Optional[Outcome]:
        """How the job ends; None until that is decided. A nearer cause may replace it at first."""
        return self._settling.verdict

    @property
    def waiting(self) -> list[str]:
        """The names of the tasks that do not run yet; none once the job's end is decided."""
        states = {} if self.verdict is not None else self.states
        return [name for name, one in states.items() if one.status in ("waiting", "starting")]

    @property
    def live_tasks(self) -> list[str]:
        """The name of the task of each pod that has not ended, by the last poll."""
        return [pod.task for pod in self._pods if pod.state != "ended"]

    def wants_deletion(self, now: float) -> bool:
        """Returns whether to delete the job now: after a success, tasks have time to end."""
        return self.verdict is not None and (now >= self._grace_until or not self.live_tasks)

    def saw(self, poll: Poll, asked: float, now: float) -> list[str]:
        """Records what a poll shows; returns what to tell the user.

        Args:
          poll: what it shows.
          asked: when it was asked for.
          now: the time.
        """
        self._saw_job(poll, now)
        had_failed, self._has_failed = self._has_failed, bool(poll.failed)
        # A failure explains deletions, so pods that nobody has deleted come first.
        known = [pod for pod in poll.pods if pod.task in self.states]
        self._pods = sorted(known, key=lambda pod: pod.by_deletion)
        notes: list[str] = []
        for pod in self._pods:
            if pod.uid not in self._past:
                notes += self._saw_pod(pod, now)
        shown = {pod.uid for pod in self._pods}
        for pod in [*self._newest.values()]:
            if pod.uid not in self._past | shown:
                notes += self._gone(pod, now)
        if had_failed and self.verdict is None:  # the first one may not show the pod that has
            words = f"the TFJob has failed: {poll.failed}"
            self._report(Outcome(1, words, cause=Cause.TASK_FAILED), now)
        if self._deleted is not None and asked > self._deleted:
            self._has_ended = not self.live_tasks
        return notes

    def warned(self, warnings: Mapping[str, str]) -> list[str]:
        """Records why tasks wait; returns what to tell the user.

        Args:
          warnings: a pod's uid, or the name of a job -> the newest warning about it.
        """
        notes: list[str] = []
        for name in self.waiting:
            pod = self._newest.get(name)
            if pod is not None:  # what the pod itself says is nearer
                words = pod.words or warnings.get(pod.uid, "")
            else:
                words = warnings.get(job_name(self._name, name)) or warnings.get(self._name, "")
            notes += self._waits(self.states[name], words)
        return notes

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""
        self._progress.heard(now, stepped=stepped)

    def stop(self, reason: str, exit_code: int, now: float) -> None:
        """Records that the user stopped the job."""
        self._report(Outcome(exit_code, reason, cause=Cause.USER), now)
        self._grace_secs = self._grace_until = 0.0

    def due(self, now: float) -> list[str]:
        """Returns the names of the tasks whose Jobs are to be made anew now."""
        states = {} if self._is_tfjob or self.verdict is not None else self.states
        return [
            name for name, one in states.items() if one.status == "restarting" and now >= one.due
        ]

    def restarted(self, task: str) -> None:
        """Records that a task's Job was made anew."""
        self.states[task].status, self.states[task].last = "starting", ""

    def deletes(self, now: float) -> None:
        """Records that the job is being deleted; its pods have time to end."""
        self._deleted = now if self._deleted is None else self._deleted

    def tick(self, now: float) -> list[str]:
        """Decides what is due at the time `now`; returns what to tell the user."""
        if self.verdict is None:
            return self._check_limits(now)
        is_final = self.verdict.cause is Cause.USER or self._settling.is_settled(now)
        if self.outcome is not None or self._deleted is None or not is_final:
            return []
        is_late = now > self._deleted + overdue_secs(self._limits)
        self.outcome = self.verdict if self._has_ended or is_late else None
        if self.outcome is None or self._has_ended:
            return []
        return [f"{', '.join(self.live_tasks) or 'the job'}: end not confirmed; run `clean`"]

    def _report(self, outcome: Outcome, now: float) -> bool:
        """Takes a report about the end; returns whether it is now the verdict."""
        if self.verdict is None:
            for state in self.states.values():
                if state.status in ("waiting", "restarting"):
                    state.status = "ended"
        took = self._settling.report(outcome, now)
        if took and outcome.exit_code == 0:
            self._grace_until = now + self._grace_secs
        return took

    def _saw_job(self, poll: Poll, now: float) -> None:
        if poll.is_deleted and self._deleted is None:
            words = "the job was deleted by someone else"
            self._report(Outcome(1, words, cause=Cause.CANCELLED), now)
            self.deletes(now)
        if poll.succeeded:
            lead = next(name for name, state in self.states.items() if state.task.is_lead)
            self._report(Outcome(0, f"{lead} is done", cause=Cause.DONE), now)
        if poll.is_late and self._deleted is None:
            words = f"{poll.failed}; `deadline_secs:` under `kubernetes:` is the limit"
            self._report(Outcome(_LATE, words, cause=Cause.TIME_LIMIT), now)

    def _saw_pod(self, pod: Pod, now: float) -> list[str]:
        state, before = self.states[pod.task], self._newest.get(pod.task)
        notes: list[str] = []
        if before is None or before.uid != pod.uid:
            if before is not None and before.uid not in self._past:
                notes += self._gone(before, now)
            if state.status != "failed":
                state.status, state.last = "starting", ""
        self._newest[pod.task] = pod
        if pod.node:
            state.task = replace(state.task, host=replace(state.task.host, name=pod.node))
        if pod.state == "ended":
            self._past.add(pod.uid)
            return notes + self._ended(state, pod, now)
        if pod.state == "running" and state.alive:
            state.status, state.last = "running", ""
        if not pod.is_stuck:
            self._stuck.pop(pod.uid, None)
        if self.verdict is not None or pod.state != "waiting" or not state.alive:
            return notes
        notes += self._waits(state, pod.words)
        if pod.is_stuck and now > self._stuck.setdefault(pod.uid, now) + _STUCK_SECS:
            notes += self._fail(state, None, now)
        return notes

    def _waits(self, state: TaskState, words: str) -> list[str]:
        """Records why a task waits; returns what to tell the user: nothing if it knows that."""
        if words in ("", state.last):
            return []
        state.last = words
        return [f"{state.task.name} waits: {words}"]

    def _gone(self, pod: Pod, now: float) -> list[str]:
        """Judges a pod that does not exist any more, and whose end no poll has shown."""
        self._past.add(pod.uid)
        state = self.states[pod.task]
        if not state.alive:
            return []
        if self.verdict is not None or self._has_failed:
            state.status = "ended"
            return []
        words, cause = "its pod was lost", Cause.HOST_LOST
        if pod.is_disrupted:
            words, cause = pod.words, pod.cause
        return self._judge(state, None, words, cause, now)

    def _ended(self, state: TaskState, pod: Pod, now: float) -> list[str]:
        if pod.code == 0 and state.task.is_lead:
            self._report(Outcome(0, f"{pod.task} is done", cause=Cause.DONE), now)
        if not state.alive:
            return []
        if self.verdict is None:
            return self._judge(state, pod.code, pod.words, pod.cause, now)
        state.status, state.code, state.last, state.cause = "ended", pod.code, pod.words, pod.cause
        is_stopped = self._deleted is not None and self.verdict.cause is Cause.USER
        if pod.code == 0 or pod.by_deletion or is_stopped:  # a deletion comes after the cause
            return []
        if pod.cause is Cause.TASK_FAILED:
            state.status = "failed"
        failure = self._failure(state)
        return [failure.reason] if self._report(failure, now) else []

    def _judge(
        self, state: TaskState, code: Optional[int], words: str, cause: Cause, now: float
    ) -> list[str]:
        """Decides whether a task that has ended is done, is restarted, or fails the job."""
        name = state.task.name
        state.status, state.code, state.last, state.cause = "ended", code, words, cause
        if code == 0:
            return [] if state.task.task_type == "ps" else [f"{name} is done"]
        is_made_anew = code is None or code >= _FIRST_SIGNAL if self._is_tfjob else code != _MISTAKE
        is_over = cause is Cause.TIME_LIMIT  # a new pod would be late, too
        if not is_made_anew or is_over or state.restarts >= self._restarts:
            return self._fail(state, code, now)
        wait = 0.0 if self._is_tfjob else min(2.0**state.restarts, _LONGEST_BACKOFF_SECS)
        state.restarts += 1
        state.status, state.due = "restarting", now + wait
        again = f"restart {state.restarts} of {self._restarts}"
        again += f" in {wait:g} s" if wait else ""
        return [f"{name} on {state.task.host.name}: {words}; {again}"]

    def _fail(self, state: TaskState, code: Optional[int], now: float) -> list[str]:
        state.code, state.status = code, "failed"
        failure = self._failure(state)
        self._report(failure, now)
        for pod in self._pods:  # a task that fails without another one is not the cause
            if pod.is_disrupted and not pod.by_deletion and pod.state != "ended":
                words = f"{pod.task} on {pod.node or '-'} failed: {pod.words}"
                self._report(Outcome(1, words, pod.task, cause=pod.cause), now)
        return [f"{failure.reason}; stopping the others"]

    def _failure(self, state: TaskState) -> Outcome:
        name, node = state.task.name, state.task.host.name
        again = f", after {state.restarts} restarts" if state.restarts else ""
        where = "" if node == "-" else f" on {node}"
        reason = f"{name}{where} failed: {state.last}{again}"
        code = _LATE if state.cause is Cause.TIME_LIMIT else exit_code_of(state.code)
        return Outcome(code, reason, name, cause=state.cause)

    def _check_limits(self, now: float) -> list[str]:
        reason = self._progress.overdue(now)
        if reason is None:
            return []
        for name in self.waiting[:1]:
            words = self.states[name].last or "its pod was not created"
            reason += f": {name} waits: {words}"
        words = f"{reason}; the limits are start_secs and idle_secs"
        self._report(Outcome(_LATE, words, cause=Cause.TIME_LIMIT), now)
        return [f"{reason}; stopping"]
