"""Decides how a TFJob ends, from the states of its pods and from the time.

Nothing here has side effects outside its objects: the operator starts and restarts pods, and
`launch.backends.kubernetes.run` reports their states.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

from launch.backends.kubernetes.pod_end import overdue_secs
from launch.backends.kubernetes.pods import Pod
from launch.cluster.model import Limits
from launch.cluster.tasks import Task
from launch.record.outcome import Cause, Outcome, exit_code_of
from launch.supervise.progress_watch import ProgressWatch
from launch.supervise.supervisor import TaskState

_STUCK_SECS = 60.0  # an image's registry may need a second try
_POD_SECS = 3.0  # the report of the failed pod may come after that of the failed job
_FIRST_SIGNAL = 128  # for exit codes from here on, the operator recreates the pod


class CurrentPods:
    """Keeps each task's newest pod, the pods that have not ended, and the tasks with stuck pods.

    Attributes:
      stuck: task's name -> time at which its pod was first seen stuck.
    """

    def __init__(self) -> None:
        self.stuck: dict[str, float] = {}
        self._uids: dict[str, str] = {}  # task's name -> uid of its newest pod
        self._live: dict[str, str] = {}  # uid of each pod that has not ended -> its task's name

    def take(self, pod: Pod) -> bool:
        """Records a pod's state; returns whether this is a new pod of its task."""
        if pod.state == "ended":
            self._live.pop(pod.uid, None)
        else:
            self._live[pod.uid] = pod.task
        is_new = self._uids.get(pod.task) != pod.uid
        self._uids[pod.task] = pod.uid
        return is_new

    def gone(self, task: str, uid: str) -> bool:
        """Records that a pod was deleted; returns whether it was its task's newest one."""
        self._live.pop(uid, None)
        return self._uids.get(task) == uid

    @property
    def live_tasks(self) -> list[str]:
        """The name of the task of each pod that has not ended."""
        return list(self._live.values())


class Follower:
    """Follows one job.

    Args:
      tasks: all tasks of the job.
      limits: the job's time limits.
      restarts: how often the operator may replace each task's pod.
      now: the time at which the job starts, in seconds, on the same clock as all later times.

    Attributes:
      states: task's name -> its state.
      verdict: how the job ends; None until that is decided.
      outcome: the verdict, once all pods have ended or are overdue; None before.
    """

    def __init__(self, tasks: Sequence[Task], limits: Limits, restarts: int, now: float) -> None:
        self.states = {
            task.name: TaskState(replace(task, host=replace(task.host, name="-"))) for task in tasks
        }
        self.verdict: Optional[Outcome] = None
        self.outcome: Optional[Outcome] = None
        self._limits, self._restarts = limits, restarts
        self._progress = ProgressWatch(limits, now)
        self._pods = CurrentPods()
        self._failed: Optional[tuple[float, str]] = None  # time and reason of the TFJob's failure
        self._decided = 0.0  # when the end was decided
        self._deleted: Optional[float] = None  # when the TFJob was deleted

    def wants_deletion(self, now: float) -> bool:
        """Returns whether to delete the job now; after a success, tasks have time to end."""
        if self.verdict is None or self._deleted is not None:
            return False
        in_grace = now < self._decided + self._limits.grace_secs
        return bool(self.verdict.exit_code) or not (in_grace and self._pods.live_tasks)

    def saw_pod(self, pod: Pod, now: float) -> list[str]:
        """Records a pod's state; returns what to tell the user."""
        state = self.states.get(pod.task)
        if state is None:
            return []
        notes: list[str] = []
        if self._pods.take(pod):
            if state.alive and not self.verdict:  # the end of the previous pod was not seen
                notes += self._ended(state, replace(pod, code=None, words="its pod was lost"), now)
            if state.status != "failed":
                state.status, state.last = "starting", ""
        if pod.node:
            state.task = replace(state.task, host=replace(state.task.host, name=pod.node))
        if not state.alive:
            return notes
        if pod.state == "ended":
            return notes + self._ended(state, pod, now)
        if pod.state == "running":
            state.status, state.last = "running", ""
            self._pods.stuck.pop(pod.task, None)
            return notes
        return notes + self._waits(state, pod, now)

    def pod_gone(self, task: str, uid: str) -> None:
        """Records that a pod was deleted."""
        was_current = self._pods.gone(task, uid)
        state = self.states.get(task)
        if state is not None and was_current and state.alive and self.verdict:
            state.status = "ended"

    def warned(self, task: str, words: str) -> list[str]:
        """Records a warning about a pod that does not start; returns what to tell the user."""
        state = self.states[task]
        if self.verdict or state.status not in ("waiting", "starting") or words in state.last:
            return []
        state.last = words
        return [f"{task} waits: {words}"]

    def saw_job(self, job: dict[str, Any], now: float) -> None:
        """Records the conditions of the TFJob object of the API."""
        for condition in job.get("status", {}).get("conditions") or []:
            if condition["status"] == "True" and condition["type"] == "Succeeded":
                self._decide(Outcome(0, f"{self._lead} is done", cause=Cause.DONE), now)
            if condition["status"] == "True" and condition["type"] == "Failed":
                self._failed = self._failed or (now, condition.get("message", ""))

    def job_gone(self, now: float) -> None:
        """Records that the TFJob does not exist any more."""
        self._deleted = self._deleted or now
        words = "the TFJob was deleted by someone else"
        self._decide(Outcome(1, words, cause=Cause.CANCELLED), now)

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""
        self._progress.heard(now, stepped=stepped)

    def stop(self, reason: str, exit_code: int, now: float) -> None:
        """Records that the user stopped the job."""
        self._decide(Outcome(exit_code, reason, cause=Cause.USER), now)

    def deleted(self, now: float) -> None:
        """Records that this launcher deleted the job; its pods still have time to end."""
        self._deleted = now

    def tick(self, now: float) -> list[str]:
        """Decides what is due at the time `now`; returns what to tell the user."""
        if self.verdict is None:
            return self._check_limits(now)
        if self._deleted is None:
            return []
        late = now > self._deleted + overdue_secs(self._limits)
        if self._pods.live_tasks and not late:
            return []
        self.outcome = self.verdict
        names = ", ".join(self._pods.live_tasks)
        return [f"{names}: end not confirmed; run `clean`"] if names else []

    @property
    def _lead(self) -> str:
        return next(name for name, state in self.states.items() if state.task.is_lead)

    def _decide(self, verdict: Outcome, now: float) -> None:
        if self.verdict is None:
            self.verdict = verdict
            self._decided = now
            for state in self.states.values():
                if state.status in ("waiting", "restarting"):
                    state.status = "ended"

    def _waits(self, state: TaskState, pod: Pod, now: float) -> list[str]:
        is_news = pod.words != state.last and (":" in pod.words or pod.stuck)
        state.last = pod.words or state.last
        if pod.stuck:
            self._pods.stuck.setdefault(pod.task, now)
        if pod.hopeless and not self.verdict:
            return self._fail(state, None, now)
        return [f"{pod.task} waits: {pod.words}"] if is_news and not self.verdict else []

    def _ended(self, state: TaskState, pod: Pod, now: float) -> list[str]:
        name = state.task.name
        state.code, state.last = pod.code, pod.words
        state.status = "ended"
        if self.verdict:
            return []
        if pod.code == 0:
            if state.task.is_lead:
                self._decide(Outcome(0, f"{name} is done", cause=Cause.DONE), now)
                return []
            return [] if state.task.task_type == "ps" else [f"{name} is done"]
        is_made_anew = pod.code is None or pod.code >= _FIRST_SIGNAL
        if not is_made_anew or state.restarts >= self._restarts:
            return self._fail(state, pod.code, now)
        state.restarts += 1
        state.status = "restarting"
        where = state.task.host.name
        return [f"{name} on {where}: {pod.words}; restart {state.restarts} of {self._restarts}"]

    def _fail(self, state: TaskState, code: Optional[int], now: float) -> list[str]:
        name, node = state.task.name, state.task.host.name
        again = f", after {state.restarts} restarts" if state.restarts else ""
        where = "" if node == "-" else f" on {node}"
        state.status = "failed"
        reason = f"{name}{where} failed: {state.last}{again}"
        self._decide(Outcome(exit_code_of(code), reason, name, cause=Cause.TASK_FAILED), now)
        return [f"{reason}; stopping the others"]

    def _check_limits(self, now: float) -> list[str]:
        if self._failed is not None and now > self._failed[0] + _POD_SECS:
            words = f"the TFJob has failed: {self._failed[1]}"
            self._decide(Outcome(1, words, cause=Cause.TASK_FAILED), now)
            return []
        # At most half of start_secs, so that the message names the pod rather than the limit.
        patience = min(_STUCK_SECS, (self._limits.start_secs or 2 * _STUCK_SECS) / 2)
        for name, since in self._pods.stuck.items():
            if now > since + patience:
                return self._fail(self.states[name], None, now)
        overdue = self._progress.overdue(now)
        return [] if overdue is None else self._time_out(overdue, now)

    def _time_out(self, reason: str, now: float) -> list[str]:
        """Ends the job at a time limit; names a task whose pod has not started, if there is one."""
        for name, state in self.states.items():
            if state.status in ("waiting", "starting"):
                reason += f": {name} waits: {state.last or 'the operator has not created its pod'}"
                break
        words = f"{reason}; the limits are start_secs and idle_secs"
        self._decide(Outcome(124, words, cause=Cause.TIME_LIMIT), now)
        return [f"{reason}; stopping"]
