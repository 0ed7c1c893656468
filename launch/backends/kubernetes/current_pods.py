"""Keeps the newest pod of each task, and which pods are stuck, missing or still to end."""

from collections.abc import Iterator
from typing import Optional

from launch.backends.kubernetes.pods import Pod


class CurrentPods:
    """The newest pod of each task, and the pods that have not ended.

    Two watches may have missed the end of a pod between them. A pod that another one has replaced,
    or that no list shows any more, is therefore kept as missing until its task's end is judged.
    """

    def __init__(self) -> None:
        self._newest: dict[str, Pod] = {}  # task's name -> its newest pod
        self._live: dict[str, str] = {}  # uid of each pod that has not ended -> its task's name
        self._past: set[str] = set()  # uids of pods that do not exist any more
        self._stuck: dict[str, float] = {}  # task's name -> when its pod was first seen stuck
        self._doubted: set[str] = set()  # stuck tasks whose pods no watch has shown since the last
        self._missing: dict[str, float] = {}  # task's name -> when its pod was found gone

    def take(self, pod: Pod, now: float) -> bool:
        """Records a pod's state; returns whether this is a new pod of its task."""
        before = self._newest.get(pod.task)
        is_new = before is None or before.uid != pod.uid
        if is_new and before is not None:  # a name belongs to one pod at a time
            self._past.add(before.uid)
            self._live.pop(before.uid, None)
        self._newest[pod.task] = pod
        if pod.state == "ended":
            self._live.pop(pod.uid, None)
        else:
            self._live[pod.uid] = pod.task
        self._doubted.discard(pod.task)
        if is_new or pod.state != "waiting":
            self._stuck.pop(pod.task, None)
        if pod.stuck:
            self._stuck.setdefault(pod.task, now)
        return is_new

    def newest(self, task: str) -> Optional[Pod]:
        """Returns a task's newest pod; None if it had none."""
        return self._newest.get(task)

    def is_past(self, uid: str) -> bool:
        """Returns whether a pod is known not to exist any more."""
        return uid in self._past

    def gone(self, uid: str) -> Optional[Pod]:
        """Records that a pod does not exist any more; returns it if it was its task's newest."""
        self._past.add(uid)
        self._live.pop(uid, None)
        found = next((pod for pod in self._newest.values() if pod.uid == uid), None)
        if found is not None:
            self._stuck.pop(found.task, None)
        return found

    def misses(self, task: str, now: float) -> None:
        """Records that a task's pod is gone, without word of how it ended."""
        self._missing.setdefault(task, now)

    def finds(self, task: str) -> bool:
        """Ends the wait for word of a task's missing pod; returns whether one was missing."""
        return self._missing.pop(task, None) is not None

    def missing_since(self, then: float) -> list[str]:
        """Returns the tasks whose pods have been missing since a time before `then`."""
        return [task for task, since in self._missing.items() if since < then]

    def watch_ended(self) -> None:
        """Records that a stuck pod may have started, until a watch shows it again."""
        self._doubted.update(self._stuck)

    def stuck_since(self, then: float) -> list[str]:
        """Returns the tasks whose pods are stuck, and were first seen so before `then`."""
        return [
            task
            for task, since in self._stuck.items()
            if since < then and self._newest[task].stuck and task not in self._doubted
        ]

    @property
    def disrupted(self) -> Iterator[Pod]:
        """The pods that Kubernetes is ending, and that have not ended."""
        return (pod for pod in self._newest.values() if pod.disruption and pod.uid in self._live)

    @property
    def live(self) -> frozenset[str]:
        """The uids of the pods that have not ended."""
        return frozenset(self._live)

    @property
    def live_tasks(self) -> list[str]:
        """The name of the task of each pod that has not ended."""
        return list(self._live.values())

    @property
    def are_known(self) -> bool:
        """Whether there was any pod."""
        return bool(self._newest)
