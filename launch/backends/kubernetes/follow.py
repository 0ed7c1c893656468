"""Decides how a job continues and ends, from what polls show of its pods and from the time.

Nothing here has side effects outside its objects: `launch.backends.kubernetes.run` polls, and
carries out what is decided here. What happens between two polls is seen only by what it leaves: a
pod that is gone, or another one in its place.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from launch.backends.kubernetes.pod_template import overdue_secs
from launch.backends.kubernetes.state import JobState, Pod, Poll, Warned
from launch.cluster.model import Limits
from launch.cluster.tasks import Task
from launch.record.outcome import Cause, Outcome, exit_code_of
from launch.supervise.ending import Settling
from launch.supervise.supervisor import ProgressWatch, TaskState

_STUCK_SECS = 60.0  # an image's registry may need a second try
_POD_SECS = 3.0  # the report of the failed pod may come after that of the failed job
_FIRST_SIGNAL = 128  # for exit codes from here on, the operator recreates the pod
_MISTAKE = 2  # the exit code for errors of the user, which a restart would only repeat
_LONGEST_BACKOFF_SECS = 30.0
_AGAIN_SECS = 5.0  # between two tries to restart a task
_LATE = 124  # the exit code for a time limit
_KILLED = (None, 137, 143)  # how a deleted pod ends: lost, or after SIGKILL or SIGTERM


class Follower:
    """Follows one job.

    Args:
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
        self._limits, self._restarts = limits, restarts
        self._noun, self._is_tfjob = "TFJob" if is_tfjob else "job", is_tfjob
        self._progress = ProgressWatch(limits, now)
        self._settling = Settling()
        self._pods: Sequence[Pod] = ()  # those of the last poll
        self._newest: dict[str, Pod] = {}  # task's name -> its newest pod
        self._past: set[str] = set()  # uids of pods whose end is known
        self._stuck: dict[str, float] = {}  # task's name -> when its pod was first seen stuck
        self._failed: Optional[tuple[float, str]] = None  # time and reason of the job's failure
        self._decided = 0.0  # when the end was decided
        self._is_stopped = False  # whether the user has stopped the job
        self._is_ours = False  # whether this launcher has asked for the job's deletion
        self._deleted: Optional[float] = None  # when the job was deleted
        self._has_ended = False  # whether a poll after that has shown that no pod runs
        self._warned: dict[str, str] = {}  # task's name -> the warning that the user was told last

    @property
    def verdict(self) -> Optional[Outcome]:
        """How the job ends; None until that is decided. A nearer cause may replace it at first."""
        return self._settling.verdict

    @property
    def lead(self) -> str:
        """The name of the master or chief."""
        return next(name for name, state in self.states.items() if state.task.is_lead)

    @property
    def waiting(self) -> list[str]:
        """The names of the tasks that do not run yet."""
        return [name for name, one in self.states.items() if one.status in ("waiting", "starting")]

    @property
    def is_starting(self) -> bool:
        """Whether a pod begins to run on a node; what fails then may soon be made anew."""
        return any(pod.state == "waiting" and pod.node for pod in self._pods)

    @property
    def live_tasks(self) -> list[str]:
        """The name of the task of each pod that has not ended, by the last poll."""
        return [pod.task for pod in self._pods if pod.state != "ended"]

    def wants_deletion(self, now: float) -> bool:
        """Returns whether to delete the job now.

        After a success, tasks have time to end, unless the user stops the job meanwhile.
        """
        if self.verdict is None or self._deleted is not None:
            return False
        in_grace = not self._is_stopped and now < self._decided + self._limits.grace_secs
        return bool(self.verdict.exit_code) or not (in_grace and self.live_tasks)

    def saw(self, poll: Poll, asked: float, now: float) -> list[str]:
        """Records what a poll shows; returns what to tell the user.

        Args:
          poll: what it shows.
          asked: when it was asked for.
          now: the time.
        """
        self._saw_job(poll.job, now)
        # A failure explains deletions, so pods that nobody has deleted come first.
        known = [pod for pod in poll.pods if pod.task in self.states]
        self._pods = sorted(known, key=lambda pod: pod.deleted)
        notes: list[str] = []
        for pod in self._pods:
            if pod.uid not in self._past:
                notes += self._saw_pod(pod, now)
        shown = {pod.uid for pod in self._pods}
        for pod in [*self._newest.values()]:
            if pod.uid not in self._past and pod.uid not in shown:
                notes += self._gone(pod, now)
        # At most half of start_secs, so that the message names the pod rather than the limit.
        patience = min(_STUCK_SECS, (self._limits.start_secs or 2 * _STUCK_SECS) / 2)
        if any(since < now - patience for since in self._stuck.values()):
            name = min(self._stuck, key=lambda name: self._stuck[name])
            notes += [] if self.verdict else self._fail(self.states[name], None, now)
            self._stuck.clear()
        if self._deleted is not None and asked > self._deleted:
            self._has_ended = not self.live_tasks
        return notes

    def warned(self, warnings: Sequence[Warned], job: str) -> list[str]:
        """Records warnings, the oldest first; returns what to tell the user.

        Args:
          warnings: warnings about the job, or about a pod of it.
          job: the name of the job, with which the names of its pods begin.
        """
        newest: dict[str, str] = {}
        for warning in warnings:
            for name in self.waiting:
                pod = self._newest.get(name)
                names = (job, f"{job}-{name.replace('/', '-')}")
                if warning.about in names if pod is None else warning.uid == pod.uid:
                    newest[name] = warning.words
        notes: list[str] = []
        for name, words in newest.items():
            if self.verdict is None and words != self._warned.get(name):
                self._warned[name] = self.states[name].last = words
                notes.append(f"{name} waits: {words}")
        return notes

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""
        self._progress.heard(now, stepped=stepped)

    def stop(self, reason: str, exit_code: int, now: float) -> None:
        """Records that the user stopped the job."""
        self._is_stopped = True
        self._report(Outcome(exit_code, reason, cause=Cause.USER), now)

    def due(self, now: float) -> list[str]:
        """Returns the names of the tasks whose Jobs are to be made anew now."""
        states = {} if self._is_tfjob or self.verdict is not None else self.states
        return [
            name for name, one in states.items() if one.status == "restarting" and now >= one.due
        ]

    def restarted(self, task: str) -> None:
        """Records that a task's Job was made anew."""
        self.states[task].status, self.states[task].last = "starting", ""

    def restarts_later(self, task: str, now: float) -> None:
        """Records that a task's Job could not be made anew."""
        self.states[task].due = now + _AGAIN_SECS

    def asks_for_deletion(self) -> None:
        """Records that this launcher asks for the job's deletion, so that this is no news."""
        self._is_ours = True

    def deleted(self, now: float) -> None:
        """Records that the job was deleted; its pods still have time to end."""
        self._deleted = self._deleted or now

    def tick(self, now: float) -> list[str]:
        """Decides what is due at the time `now`; returns what to tell the user."""
        if self.verdict is None:
            return self._check_limits(now)
        began = self._deleted
        if began is None:  # the deletion may fail for long
            began = self._decided + (0 if self.verdict.exit_code else self._limits.grace_secs)
        is_late = now > began + overdue_secs(self._limits)
        is_final = self.verdict.cause is Cause.USER or self._settling.is_settled(now)
        if self.outcome is not None or not (self._has_ended or is_late) or not is_final:
            return []
        self.outcome = self.verdict
        names = "" if self._has_ended else ", ".join(self.live_tasks) or "the job"
        return [f"{names}: end not confirmed; run `clean`"] if names else []

    def _report(self, outcome: Outcome, now: float) -> bool:
        """Takes a report about the end; returns whether it is now the verdict."""
        if self.verdict is None:
            self._decided = now
            for state in self.states.values():
                if state.status in ("waiting", "restarting"):
                    state.status = "ended"
        took = self._settling.report(outcome, now)
        if took and outcome.exit_code == 0:
            self._decided = now  # the grace begins
        return took

    def _saw_job(self, job: Optional[JobState], now: float) -> None:
        is_gone = job is None or job.deleted
        if is_gone and not self._is_ours:
            words = f"the {self._noun} was deleted by someone else"
            self._report(Outcome(1, words, cause=Cause.CANCELLED), now)
        if job is None:
            self.deleted(now)
            return
        if job.succeeded:
            self._report(Outcome(0, f"{self.lead} is done", cause=Cause.DONE), now)
        if job.is_late and not self._is_ours:
            words = f"{job.failed}; `deadline_secs:` under `kubernetes:` is the limit"
            self._report(Outcome(_LATE, words, cause=Cause.TIME_LIMIT), now)
        elif job.failed is not None:
            self._failed = self._failed or (now, job.failed)
        # A queue may hold a job back before its start.
        if job.suspended and self._newest and not self._is_ours:
            words = "the TFJob was suspended by someone else"
            self._report(Outcome(1, words, cause=Cause.PLATFORM), now)

    def _saw_pod(self, pod: Pod, now: float) -> list[str]:
        state, before = self.states[pod.task], self._newest.get(pod.task)
        notes: list[str] = []
        if before is None or before.uid != pod.uid:
            if before is not None and before.uid not in self._past:
                notes += self._gone(before, now)
            self._stuck.pop(pod.task, None)
            if state.status != "failed":
                state.status, state.last = "starting", ""
        self._newest[pod.task] = pod
        if pod.node:
            state.task = replace(state.task, host=replace(state.task.host, name=pod.node))
        if pod.state == "ended":
            self._past.add(pod.uid)
            self._stuck.pop(pod.task, None)
            return notes + self._ended(state, pod, now)
        if not state.alive:
            return notes
        if pod.stuck:
            self._stuck.setdefault(pod.task, now)
        else:
            self._stuck.pop(pod.task, None)
        if pod.state == "running":
            state.status, state.last = "running", ""
            return notes
        is_news = pod.words != state.last and (":" in pod.words or pod.stuck)
        state.last = pod.words or state.last
        if self.verdict is not None:
            return notes
        if pod.hopeless:
            return notes + self._fail(state, None, now)
        return notes + ([f"{pod.task} waits: {pod.words}"] if is_news else [])

    def _gone(self, pod: Pod, now: float) -> list[str]:
        """Judges a pod that does not exist any more, and whose end no poll has shown."""
        self._past.add(pod.uid)
        self._stuck.pop(pod.task, None)
        state = self.states[pod.task]
        if not state.alive:
            return []
        if self.verdict is not None or self._failed is not None:
            is_done = self.verdict is not None and self.verdict.exit_code == 0
            state.status = "ended"
            state.code = 0 if is_done and state.task.is_lead else state.code
            return []
        cause = pod.cause
        if cause is Cause.TASK_FAILED:  # nobody knows whether it failed by itself
            cause = Cause.PLATFORM if pod.deleted else Cause.HOST_LOST
        lost = "its pod was deleted" if pod.deleted else "its pod was lost"
        return self._judge(state, None, pod.disruption or lost, cause, now)

    def _ended(self, state: TaskState, pod: Pod, now: float) -> list[str]:
        words, cause = pod.words, pod.cause
        is_own_end = not pod.deleted or pod.is_oom or cause is not Cause.TASK_FAILED
        # With restarts, the operator itself deletes the pods that it makes anew.
        is_others = not self._is_ours and not (self._is_tfjob and self._restarts)
        if not is_own_end and pod.code in _KILLED and is_others:
            words, cause = f"{words}; its pod was deleted", Cause.PLATFORM
        done = Outcome(0, f"{pod.task} is done", cause=Cause.DONE)
        if pod.code == 0 and state.task.is_lead and self._report(done, now):
            state.status, state.code, state.last = "ended", 0, words
            return []
        if not state.alive:
            return []
        if self.verdict is None:
            return self._judge(state, pod.code, words, cause, now)
        state.status, state.code, state.last, state.cause = "ended", pod.code, words, cause
        # Pods that end because the job was deleted say nothing about the cause.
        return self._fails_too(state, now) if pod.code != 0 and is_own_end else []

    def _fails_too(self, state: TaskState, now: float) -> list[str]:
        """Names a task that fails while the job ends; returns what to tell the user."""
        if state.cause is Cause.TASK_FAILED:
            state.status = "failed"
        failure = self._failure(state)
        if self._report(failure, now):
            return [failure.reason]
        where = f"{state.task.name} on {state.task.host.name}"
        is_done = self.verdict is not None and self.verdict.exit_code == 0
        return [f"{where}: {state.last}; see its log"] if is_done else []

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
            if pod.disruption and pod.state != "ended":
                words = f"{pod.task} on {pod.node or '-'} failed: {pod.disruption}"
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
        if self._failed is not None and now > self._failed[0] + _POD_SECS:
            words = f"the TFJob has failed: {self._failed[1]}"
            self._report(Outcome(1, words, cause=Cause.TASK_FAILED), now)
            return []
        reason = self._progress.overdue(now)
        if reason is None:
            return []
        for name in self.waiting:
            words = self.states[name].last or "its pod was not created"
            reason += f": {name} waits: {words}"
            break
        words = f"{reason}; the limits are start_secs and idle_secs"
        self._report(Outcome(_LATE, words, cause=Cause.TIME_LIMIT), now)
        return [f"{reason}; stopping"]
