"""Tells the supervisor what polls show of a job's pods.

The supervisor decides how the job continues and ends, as with every other backend. Nothing here has
side effects outside its objects: `launch.backends.kubernetes.backend` polls, and carries out the
actions. What happens between two polls is seen only by what it leaves: a pod that is gone, or
another one in its place. In place of a pod that somebody deletes, the controller of a Job makes
another one at once, so that a poll may show both while the earlier one ends.
"""

import signal
from collections.abc import Sequence
from dataclasses import replace

from launch.backends.kubernetes.manifests import overdue_secs
from launch.backends.kubernetes.state import DELETED, Pod, Poll
from launch.cluster.model import Limits
from launch.cluster.tasks import Task
from launch.record.result import ExitReason
from launch.supervise.supervisor import Action, Note, Supervisor

_SUSPENDED = "Suspended: its Job is, as a queue does until there is room"
_BY_DELETION = (signal.SIGTERM, signal.SIGKILL)
_TERMINATED = 128 + signal.SIGTERM


class PodWatch:
    """Follows one job.

    Args:
      tasks: all tasks of the job.
      limits: the job's time limits.
      restarts: how often each task may be restarted.
      now: the time at which the job starts, in seconds, on the same clock as all later times.

    Attributes:
      supervisor: the object that decides how the job continues and ends.
      alive: the pods that have not ended, by the last poll.
      without_pod: the tasks for which no pod could be created, by the last poll.
      held: the chiefs whose earlier pod may still run, by the last poll: a new one would be refused
        the output folder.
      is_blind: whether the tasks' lines cannot be read, so that nothing is known of their steps.
      is_deleted: whether this launcher has asked for the deletion of the job.
    """

    def __init__(self, tasks: Sequence[Task], limits: Limits, restarts: int, now: float) -> None:
        # The nodes end pods in their order and time; the launcher waits for all of it.
        secs = float(overdue_secs(limits))
        patient = replace(limits, stop_secs=secs)
        self.supervisor = Supervisor(tasks, patient, restarts, now, ps_secs=secs)
        self.supervisor.start()  # all tasks are in the manifests
        self.states = self.supervisor.states
        self.alive: list[Pod] = []
        self._newest: dict[str, Pod] = {}  # task's name -> its newest pod
        self._past: set[str] = set()  # uids of pods whose end is known
        self._waits: dict[str, list[str]] = {}  # why tasks wait, in words -> the tasks
        self._told: set[str] = set()  # what was said of that
        self.without_pod: list[str] = []
        self.held: set[str] = set()
        self.is_deleted = self.is_blind = False

    def tick(self, now: float) -> list[Action]:
        """Decides what is due at the time `now`. A queue may hold pods up as long as it likes."""
        statuses = {state.status for state in self.states.values()}
        if self.is_blind or statuses & {"starting", "restarting"}:
            self.supervisor.begins(now)
            self.supervisor.heard(now, stepped=False)
        return self.supervisor.tick(now)

    def saw(self, poll: Poll, now: float) -> list[Action]:
        """Decides what to do about what a poll shows."""
        actions: list[Action] = []
        if poll.is_deleted and not self.is_deleted:
            self.is_deleted = True
            words = "the job was deleted by someone else"
            actions = self.supervisor.stop(signal.SIGTERM, now, words, ExitReason.CANCELLED)
        pods = [pod for pod in poll.pods if pod.task in self.states]
        self.alive = [pod for pod in pods if pod.state != "ended"]
        shown = {pod.uid: pod for pod in pods}
        for task, before in self._newest.items():
            self._newest[task] = shown.get(before.uid, before)
        # Of two pods of the same second, the one that was deleted is the earlier one.
        pods.sort(key=lambda pod: (pod.created, not pod.by_deletion))
        new = [pod for pod in {p.task: p for p in pods}.values() if pod.uid not in self._past]
        # Disruptions explain failures, and failures explain deletions.
        new.sort(key=lambda pod: (pod.by_deletion, not pod.is_disrupted))
        fails = any(pod.state == "ended" and pod.code and not pod.is_disrupted for pod in new)
        for pod in new:
            is_cause = fails and pod.is_disrupted and not pod.by_deletion
            actions += self._saw_pod(pod, now, has_ended=is_cause or pod.state == "ended")
        for pod in [*self._newest.values()]:
            if pod.uid not in shown and poll.jobs.get(pod.task) == "Complete":
                actions += self._ended(replace(pod, code=0, words=""), now)
            elif pod.uid not in shown:
                actions += self._gone(pod, now)
        without = [name for name in self.states if name not in {pod.task for pod in pods}]
        for name in without if poll.is_deleted or self.is_deleted else ():
            if name not in poll.jobs:  # no further pod will be created
                actions += self.supervisor.ended(name, _TERMINATED, now, signals=_BY_DELETION)
        past = {pod.task for pod in self.alive if pod.uid in self._past}
        self.held = {name for name in past if self.states[name].task.is_chief}
        for name in without:
            if poll.jobs.get(name) == "Suspended":
                self._waits.setdefault(_SUSPENDED, []).append(name)
        self.without_pod = [name for name in without if poll.jobs.get(name) == ""]
        waits, self._waits = self._waits, {}
        for words, tasks in waits.items():
            if not (words in self._told or self.supervisor.ending):
                actions.append(Note(f"{', '.join(tasks)} wait{'s' * (len(tasks) == 1)}: {words}"))
            self._told.add(words)
        return actions

    def _saw_pod(self, pod: Pod, now: float, *, has_ended: bool) -> list[Action]:
        supervisor, before = self.supervisor, self._newest.get(pod.task)
        is_new = before is None or before.uid != pod.uid
        if is_new and before in self.alive and self.states[pod.task].task.is_chief:
            self._past.add(pod.uid)
            return self._gone(before, now)
        actions = self._gone(before, now) if before is not None and is_new else []
        if is_new:
            supervisor.starts_again(pod.task)
        self._newest[pod.task] = pod
        if pod.node:
            supervisor.placed(pod.task, pod.node)
        if has_ended:
            return actions + self._ended(pod, now)
        if supervisor.ending or not self.states[pod.task].alive:
            return actions
        if pod.state == "running":
            supervisor.started(pod.task)
        elif pod.words and supervisor.waits(pod.task, pod.words):
            self._waits.setdefault(pod.words, []).append(pod.task)
        return actions

    def _gone(self, pod: Pod, now: float) -> list[Action]:
        """Judges a pod that does not exist any more, or in whose place there is another one."""
        if pod.uid in self._past:
            return []
        if pod.state == "ended":
            return self._ended(pod, now)
        if self.supervisor.ending:
            return self._ended(replace(pod, code=_TERMINATED, by_deletion=True), now)
        if not pod.is_disrupted:
            pod = replace(pod, words=DELETED, cause=ExitReason.PLATFORM)
        return self._ended(replace(pod, code=None), now)

    def _ended(self, pod: Pod, now: float) -> list[Action]:
        state, supervisor = self.states[pod.task], self.supervisor
        self._past.add(pod.uid)
        supervisor.started(pod.task)
        actions: list[Action] = []
        is_late = pod.cause is ExitReason.TIME_LIMIT
        if is_late:  # a new pod would be late, too
            words = f"{pod.task} on {state.task.host.name} failed: {pod.words}"
            actions = supervisor.stop(signal.SIGTERM, now, words, ExitReason.TIME_LIMIT)
        signals = _BY_DELETION if pod.by_deletion or is_late else ()
        found = (pod.task, pod.code, now, pod.words, pod.cause, signals)
        return [*actions, *supervisor.ended(*found)]
