"""Decides how a TFJob ends, from the states of its pods and from the time.

Nothing here has side effects outside its objects: the operator starts and restarts pods, and
`launch.backends.kubernetes.runner` reports their states.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from launch.backends.kubernetes.current_pods import CurrentPods
from launch.backends.kubernetes.objects import TFJobState, Warned
from launch.backends.kubernetes.pod_template import overdue_secs
from launch.backends.kubernetes.pods import Pod
from launch.cluster.model import Limits
from launch.cluster.tasks import Task
from launch.record.outcome import Cause, Outcome, exit_code_of
from launch.supervise.progress_watch import ProgressWatch
from launch.supervise.settling import Settling
from launch.supervise.supervisor import TaskState

_STUCK_SECS = 60.0  # an image's registry may need a second try
_POD_SECS = 3.0  # the report of the failed pod may come after that of the failed job
_FIRST_SIGNAL = 128  # for exit codes from here on, the operator recreates the pod
_LATE = 124  # the exit code for a time limit
_KILLED = (None, 137, 143)  # how a deleted pod ends: lost, or after SIGKILL or SIGTERM
_SUSPENDED = Outcome(1, "the TFJob was suspended by someone else", cause=Cause.PLATFORM)
_CANCELLED = Outcome(1, "the TFJob was deleted by someone else", cause=Cause.CANCELLED)


class Follower:
    """Follows one job.

    Args:
      tasks: all tasks of the job.
      limits: the job's time limits.
      restarts: how often the operator may replace each task's pod.
      now: the time at which the job starts, in seconds, on the same clock as all later times.

    Attributes:
      states: task's name -> its state.
      outcome: the verdict, once it is final, and all pods have ended or are overdue; None before.
      sees_tfjob: whether a watch shows the TFJob. Without it, a pod that is gone is not judged: the
        operator removes pods of a TFJob that is done.
    """

    def __init__(self, tasks: Sequence[Task], limits: Limits, restarts: int, now: float) -> None:
        self.states = {
            task.name: TaskState(replace(task, host=replace(task.host, name="-"))) for task in tasks
        }
        self.outcome: Optional[Outcome] = None
        self.sees_tfjob = True
        self._limits, self._restarts = limits, restarts
        self._progress = ProgressWatch(limits, now)
        self._settling = Settling()
        self._pods = CurrentPods()
        self._failed: Optional[tuple[float, str]] = None  # time and reason of the TFJob's failure
        self._suspended: Optional[float] = None  # since when the TFJob has been suspended
        self._decided = 0.0  # when the end was decided
        self._is_stopped = False  # whether the user has stopped the job
        self._is_ours = False  # whether this launcher has asked for the TFJob's deletion
        self._deleted: Optional[float] = None  # when the TFJob was deleted
        self._warned: dict[str, str] = {}  # task's name -> time of its newest warning
        self._taken: set[str] = set()  # tasks whose pods others have deleted

    @property
    def verdict(self) -> Optional[Outcome]:
        """How the job ends; None until that is decided. A nearer cause may replace it at first."""
        return self._settling.verdict

    @property
    def is_disputed(self) -> bool:
        """Whether the job fails by the word of a pod, and may really have been deleted."""
        return self.verdict is not None and self.verdict.cause not in (Cause.DONE, Cause.USER)

    @property
    def live_pods(self) -> frozenset[str]:
        """The uids of the pods that have not ended."""
        return self._pods.live

    def wants_deletion(self, now: float) -> bool:
        """Returns whether to delete the job now.

        After a success, tasks have time to end, unless the user stops the job meanwhile.
        """
        if self.verdict is None or self._deleted is not None:
            return False
        in_grace = not self._is_stopped and now < self._decided + self._limits.grace_secs
        return bool(self.verdict.exit_code) or not (in_grace and self._pods.live_tasks)

    def saw_pod(self, pod: Pod, now: float) -> list[str]:
        """Records a pod's state; returns what to tell the user."""
        state = self.states.get(pod.task)
        if state is None or self._pods.is_past(pod.uid):
            return []
        notes: list[str] = []
        before = self._pods.newest(pod.task)
        is_missing = self._pods.finds(pod.task)
        if self._pods.take(pod, now):
            if before is not None and (is_missing or state.alive):  # its end was not seen
                notes += self._lost(state, before, now)
            if state.status != "failed":
                state.status, state.last = "starting", ""
        if pod.node:
            state.task = replace(state.task, host=replace(state.task.host, name=pod.node))
        is_done = state.task.is_lead and pod.state == "ended" and pod.code == 0
        if is_done and state.status == "failed":  # an earlier pod of it failed
            done = Outcome(0, f"{pod.task} is done", cause=Cause.DONE)
            if self._report(done, now):
                state.status, state.code, state.last = "ended", 0, pod.words
            return notes
        if not state.alive:
            return notes
        if pod.state == "ended":
            return notes + self._ended(state, pod, now)
        if pod.state == "running":
            state.status, state.last = "running", ""
            return notes
        return notes + self._waits(state, pod, now)

    def pod_gone(self, uid: str, now: float) -> None:
        """Records that a pod does not exist any more.

        If its end was not seen, the task's failure is not decided yet: the TFJob may be done, and
        its pods removed.
        """
        pod = self._pods.gone(uid)
        state = self.states.get(pod.task) if pod is not None else None
        if pod is None or state is None or not state.alive:
            return
        state.status = "ended" if self.verdict else "restarting"
        if not self.verdict:
            state.last = _words_of_lost(pod)
            self._pods.misses(pod.task, now)

    def watch_ended(self) -> None:
        """Records that the watch of the pods has ended: what it has shown may be outdated."""
        self._pods.watch_ended()

    def warned(self, warning: Warned, tfjob: str) -> list[str]:
        """Records a warning about the TFJob or a pod of it; returns what to tell the user.

        Args:
          warning: the warning.
          tfjob: the name of the TFJob, with which the names of its pods begin.
        """
        notes: list[str] = []
        for name, state in self.states.items():
            pod = self._pods.newest(name)
            names = (tfjob, f"{tfjob}-{name.replace('/', '-')}")
            is_about = warning.about in names if pod is None else warning.uid == pod.uid
            is_newest = warning.time >= self._warned.get(name, "")
            waits = state.status in ("waiting", "starting") and not self.verdict
            if is_about and is_newest and waits and warning.words not in state.last:
                self._warned[name] = warning.time
                state.last = warning.words
                notes.append(f"{name} waits: {warning.words}")
        return notes

    def saw_tfjob(self, job: TFJobState, now: float) -> None:
        """Records the state of the TFJob."""
        if job.succeeded:
            if self._pods.finds(self.lead):
                self.states[self.lead].status, self.states[self.lead].code = "ended", 0
            self._report(Outcome(0, f"{self.lead} is done", cause=Cause.DONE), now)
        if job.failed is not None:
            self._failed = self._failed or (now, job.failed)
        if job.is_late and not self._is_ours:
            words = f"{job.failed}; `deadline_secs:` under `kubernetes:` is the limit"
            self._report(Outcome(_LATE, words, cause=Cause.TIME_LIMIT), now)
        if job.deleted and not self._is_ours:
            self._report(_CANCELLED, now)
        if not (job.suspended and self._pods.are_known):  # a queue may hold a job back at first
            self._suspended = None
            return
        # The pods of a job that the queue has let go may be known before that is.
        self._suspended = self._suspended or now
        if self.verdict is not None and self.verdict.task in self._taken:
            self._report(_SUSPENDED, now)

    def tfjob_gone(self, now: float) -> None:
        """Records that the TFJob does not exist any more."""
        if not self._is_ours:
            self._report(_CANCELLED, now)
        self._deleted = self._deleted or now

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""
        self._progress.heard(now, stepped=stepped)

    def stop(self, reason: str, exit_code: int, now: float) -> None:
        """Records that the user stopped the job."""
        self._is_stopped = True
        self._report(Outcome(exit_code, reason, cause=Cause.USER), now)

    def asks_for_deletion(self) -> None:
        """Records that this launcher asks for the TFJob's deletion, so that this is no news."""
        self._is_ours = True

    def deleted(self, now: float) -> None:
        """Records that this launcher deleted the job; its pods still have time to end."""
        self._deleted = self._deleted or now

    def tick(self, now: float) -> list[str]:
        """Decides what is due at the time `now`; returns what to tell the user."""
        if self.verdict is None:
            return self._check_limits(now)
        began = self._deleted
        if began is None:  # the deletion may fail for long
            began = self._decided + (0 if self.verdict.exit_code else self._limits.grace_secs)
        late = now > began + overdue_secs(self._limits)
        has_ended = self._deleted is not None and not self._pods.live_tasks
        is_final = self.verdict.cause is Cause.USER or self._settling.is_settled(now)
        if not (has_ended or late) or not is_final:
            return []
        self.outcome = self.verdict
        if self.verdict.task in self._taken and self.verdict.cause is Cause.TASK_FAILED:
            self.outcome = replace(self.verdict, cause=Cause.PLATFORM)
        names = ", ".join(self._pods.live_tasks) or ("" if has_ended else "the TFJob")
        return [f"{names}: end not confirmed; run `clean`"] if names else []

    @property
    def lead(self) -> str:
        """The name of the master or chief."""
        return next(name for name, state in self.states.items() if state.task.is_lead)

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

    def _waits(self, state: TaskState, pod: Pod, now: float) -> list[str]:
        is_news = pod.words != state.last and (":" in pod.words or pod.stuck)
        state.last = pod.words or state.last
        if pod.hopeless and not self.verdict:
            return self._fail(state, None, now)
        return [f"{pod.task} waits: {pod.words}"] if is_news and not self.verdict else []

    def _lost(self, state: TaskState, pod: Pod, now: float) -> list[str]:
        """Judges the end of a pod that was not seen."""
        if self.verdict is not None:
            return []
        self._taken.discard(pod.task)
        cause = pod.cause
        if pod.deleted and not self._is_ours:
            self._taken.add(pod.task)
        elif cause is Cause.TASK_FAILED:  # nobody knows whether it failed by itself
            cause = Cause.HOST_LOST
        return self._judge(state, None, _words_of_lost(pod), cause, now)

    def _ended(self, state: TaskState, pod: Pod, now: float) -> list[str]:
        words = pod.words
        self._taken.discard(pod.task)
        if pod.deleted and not self._is_ours and not pod.disruption and pod.code in _KILLED:
            words += "; its pod was deleted"
            self._taken.add(pod.task)
        if self.verdict is None:
            return self._judge(state, pod.code, words, pod.cause, now)
        state.status, state.code, state.last, state.cause = "ended", pod.code, words, pod.cause
        # Pods that end because this launcher has deleted them say nothing about the cause.
        is_own_end = not pod.deleted or pod.is_oom or pod.cause is not Cause.TASK_FAILED
        if pod.code != 0 and is_own_end:
            return self._fails_too(state, now)
        # A lead that the deletion ends before it is done does not end with 0.
        if pod.code == 0 and state.task.is_lead:
            self._report(Outcome(0, f"{pod.task} is done", cause=Cause.DONE), now)
        return []

    def _fails_too(self, state: TaskState, now: float) -> list[str]:
        """Names a task that fails while the job ends; returns what to tell the user."""
        if state.cause is Cause.TASK_FAILED:
            state.status = "failed"
        failure = self._failure(state, state.cause)
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
            if state.task.is_lead:
                self._report(Outcome(0, f"{name} is done", cause=Cause.DONE), now)
                return []
            return [] if state.task.task_type == "ps" else [f"{name} is done"]
        is_made_anew = code is None or code >= _FIRST_SIGNAL
        is_over = cause is Cause.TIME_LIMIT  # a new pod would be late, too
        if not is_made_anew or is_over or state.restarts >= self._restarts:
            return self._fail(state, code, now)
        state.restarts += 1
        state.status = "restarting"
        where = state.task.host.name
        return [f"{name} on {where}: {words}; restart {state.restarts} of {self._restarts}"]

    def _fail(self, state: TaskState, code: Optional[int], now: float) -> list[str]:
        state.code, state.status = code, "failed"
        failure = self._failure(state, state.cause)
        self._report(failure, now)
        for pod in self._pods.disrupted:  # a task that fails without another one is not the cause
            words = f"{pod.task} on {pod.node or '-'} failed: {pod.disruption}"
            self._report(Outcome(1, words, pod.task, cause=pod.cause), now)
        return [f"{failure.reason}; stopping the others"]

    def _failure(self, state: TaskState, cause: Cause) -> Outcome:
        name, node = state.task.name, state.task.host.name
        again = f", after {state.restarts} restarts" if state.restarts else ""
        where = "" if node == "-" else f" on {node}"
        reason = f"{name}{where} failed: {state.last}{again}"
        code = _LATE if cause is Cause.TIME_LIMIT else exit_code_of(state.code)
        return Outcome(code, reason, name, cause=cause)

    def _check_limits(self, now: float) -> list[str]:
        suspended = self._suspended if self.sees_tfjob else None
        if suspended is not None and now > suspended + _POD_SECS:
            self._report(_SUSPENDED, now)
            return []
        if self._failed is not None and now > self._failed[0] + _POD_SECS:
            words = f"the TFJob has failed: {self._failed[1]}"
            self._report(Outcome(1, words, cause=Cause.TASK_FAILED), now)
            return []
        for name in self._pods.missing_since(now - _POD_SECS if self.sees_tfjob else -math.inf):
            pod = self._pods.newest(name)
            if self._pods.finds(name) and pod is not None:
                return self._lost(self.states[name], pod, now)
        # At most half of start_secs, so that the message names the pod rather than the limit.
        patience = min(_STUCK_SECS, (self._limits.start_secs or 2 * _STUCK_SECS) / 2)
        overdue = self._progress.overdue(now)
        then = now - patience if overdue is None else math.inf
        for name in self._pods.stuck_since(then):
            return self._fail(self.states[name], None, now)
        return [] if overdue is None else self._time_out(overdue, now)

    def _time_out(self, reason: str, now: float) -> list[str]:
        """Ends the job at a time limit; names a task whose pod has not started, if there is one."""
        for name, state in self.states.items():
            if state.status in ("waiting", "starting"):
                reason += f": {name} waits: {state.last or 'the operator has not created its pod'}"
                break
        words = f"{reason}; the limits are start_secs and idle_secs"
        self._report(Outcome(_LATE, words, cause=Cause.TIME_LIMIT), now)
        return [f"{reason}; stopping"]


def _words_of_lost(pod: Pod) -> str:
    return pod.disruption or ("its pod was deleted" if pod.deleted else "its pod was lost")
