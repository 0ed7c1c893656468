"""Reports what kubectl's watches, lists and logs show, and deletes the job when it ends.

What fails before the TFJob exists ends the run. Later, every call of kubectl that fails is tried
again while the job lasts, or is left out, because the job goes on in the cluster.
"""

import queue
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

from launch.agent.logs import Mask
from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.follow import Follower
from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.logs import Line, PodLogs
from launch.backends.kubernetes.pod_list import Listed, PodList
from launch.backends.kubernetes.pods import Pod
from launch.backends.kubernetes.streams import Stream
from launch.backends.kubernetes.tfjob import TFJOBS, TFJob
from launch.backends.kubernetes.watches import UNREADABLE, Watch, pod_events, tfjob_events, warnings
from launch.errors import HostError
from launch.supervise.run_loop import RunLoop

_EVENTS_SECS = 5.0  # how long tasks wait before events are read, which say why
_DELETE_SECS = 5.0  # between two tries to delete the TFJob
_PODS, _TFJOB, _EVENTS = "pods", "tfjob", "events"

Event = tuple[Stream, Any]  # a stream and its item; the item is None at the stream's end


class Left(Exception):
    """The launcher does not follow the job any more, which goes on."""


class Runner:
    """Reports the TFJob's changes to the follower, and deletes the TFJob when the follower says so.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      tfjob: the objects in the cluster.
      follower: the object that decides how the job ends.
      loop: the run loop, which takes the tasks' lines and notes for the user.
      secrets: values to mask in the tasks' lines.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        tfjob: TFJob,
        follower: Follower,
        loop: RunLoop[Event],
        secrets: Sequence[str],
    ) -> None:
        self._kubectl, self._tfjob, self._mask = kubectl, tfjob, Mask(secrets)
        self._follower, self._loop = follower, loop
        self._logs = PodLogs(kubectl, self._put)
        name = tfjob.name
        selector = f"--selector={manifests.pod_selector(name)}"
        warning = "--field-selector=type=Warning"
        self._watches = {
            _PODS: Watch((_PODS, selector), pod_events),
            _TFJOB: Watch((TFJOBS, name), tfjob_events),
            _EVENTS: Watch((_EVENTS, warning), warnings(name), is_needed=False),
        }
        self._watches[_EVENTS].due = time.monotonic() + _EVENTS_SECS
        self._list = PodList(kubectl, selector, self._put)
        self._shown: set[str] = set()  # uids of the pods that the open watch has shown
        self._later: list[Pod] = []  # pods whose ends others may explain
        self._told: set[str] = set()  # errors that the user was told
        self._delete_due = 0.0
        self._stops = 0

    def start(self) -> None:
        """Creates all objects; HostError if the cluster refuses one of them."""
        self._tfjob.create()

    def close(self) -> None:
        """Ends all streams."""
        for watch in self._watches.values():
            watch.close()
        self._list.close()
        self._logs.close()

    def handle(self, event: Event) -> None:
        """Handles an item of a watch, of a list of pods or of a log."""
        (stream, item), now = event, time.monotonic()
        for kind, watch in self._watches.items():
            if watch.stream is stream:
                self._take_watched(kind, item, now)
                return
        if self._list.stream is stream:
            self._take_list(self._list.take(item, now), now)
            return
        self._take_lines(self._logs.take(stream, item))

    def stop(self, signum: int, count: int) -> None:
        """Ends the job in order at the first signal, and deletes its pods at once at later ones.

        Raises:
          Left: the signal is SIGHUP, and the job is not ending: it goes on.
        """
        name = signal.Signals(signum).name
        if signum == signal.SIGHUP:
            if self._follower.verdict is None:
                raise Left
            self._loop.note(f"{name}: the job is ending already")
            return
        self._stops += 1
        if self._stops == 1:
            self._loop.note(f"{name}: deleting the job; a second signal ends it immediately")
            self._follower.stop(f"stopped by {name}", 128 + signum, time.monotonic())
            return
        try:
            self._tfjob.delete_pods()
        except HostError as error:
            self._loop.note(f"{error}; a further signal tries again")

    def tick(self, now: float) -> None:
        """Opens watches, and deletes the TFJob when the follower says so."""
        self._keep_reading(now)
        self._tfjob.adopt(now)
        for pod in self._later:
            self._loop.note(*self._follower.saw_pod(pod, now))
        self._later = []
        self._loop.note(*self._follower.tick(now))
        if now >= self._delete_due and self._follower.wants_deletion(now):
            self._delete_due = now + _DELETE_SECS
            self._delete(now)

    def has_lines_to_come(self) -> bool:
        """Returns whether a log has not been read to its end.

        It is that of a pod that has ended, or the lead's: the TFJob may be shown as done before its
        pods are.
        """
        self._keep_reading(time.monotonic())
        verdict = self._follower.verdict
        is_done = verdict is not None and verdict.exit_code == 0
        is_unseen = is_done and not self._logs.has_ended(self._follower.lead)
        return is_unseen or not self._logs.are_complete

    def _keep_reading(self, now: float) -> None:
        """Opens missing watches and logs; API servers and networks end each of them at times."""
        states = self._follower.states.values()
        is_waiting = any(state.status in ("waiting", "starting") for state in states)
        for kind, watch in self._watches.items():
            if kind != _EVENTS or (is_waiting and not self._follower.verdict):
                watch.open(self._kubectl, self._put, now)
            else:
                watch.close()
        # A pod that went before the watch was opened is not in it, and may be in all earlier lists.
        is_unsure = self._logs.wants_list or not self._follower.live_pods <= self._shown
        if is_unsure and self._list.stream is None:
            self._list.ask()
        self._list.keep_asking(self._follower.live_pods, now)
        self._logs.keep_reading(now)

    def _put(self, stream: Stream, item: Any) -> None:
        while not stream.closed:
            try:
                self._loop.events.put((stream, item), timeout=0.5)
                return
            except queue.Full:
                continue

    def _take_watched(self, kind: str, item: Any, now: float) -> None:
        if item is None:
            self._watch_ended(kind, now)
        elif kind == _EVENTS:
            self._loop.note(*self._follower.warned(item, self._tfjob.name))
        elif item[0] == UNREADABLE:
            self._tell_once(f"{item[1]}; it is left out")
        elif kind == _PODS and item[1] is not None:
            self._take_pod(item[0], item[1], now)
        elif kind == _TFJOB:
            self._follower.sees_tfjob = True
            self._follower.saw_tfjob(item[1], now)
            if item[0] == "DELETED":
                self._follower.tfjob_gone(now)

    def _take_pod(self, event: str, pod: Pod, now: float) -> None:
        if pod.task not in self._follower.states:  # somebody has changed the TFJob's replicas
            words = "this job has no such task; its pod is left out"
            self._tell_once(f"{pod.task}: {words}")
            return
        self._shown.add(pod.uid)
        if event == "DELETED":
            self._loop.note(*self._follower.saw_pod(replace(pod, deleted=True), now))
            self._follower.pod_gone(pod.uid, now)
            self._logs.follow(replace(pod, state="ended"), now)
            self._logs.gone(pod.uid)
            return
        if event == "ADDED" and pod.state == "ended" and pod.deleted:
            # A list, in which a task that failed may follow those that were deleted for that.
            self._later.append(pod)
        else:
            self._loop.note(*self._follower.saw_pod(pod, now))
        if pod.has_log and (pod.state == "running" or pod.code is not None):
            self._logs.follow(pod, now)
            self._logs.keep_reading(now)

    def _take_list(self, listed: Optional[Listed], now: float) -> None:
        if listed is not None:
            for uid in listed.gone:
                self._follower.pod_gone(uid, now)
                self._logs.gone(uid)
            self._take_lines(self._logs.listed(listed.uids, listed.asked))

    def _take_lines(self, lines: Sequence[Line]) -> None:
        for pod, line in lines:
            self._loop.take_lines(pod.task, pod.node, [self._mask.text(line)])

    def _watch_ended(self, kind: str, now: float) -> None:
        errors, words = self._watches[kind].ended(self._kubectl, now)
        if kind == _PODS:
            self._follower.watch_ended()
            self._logs.watch_ended()
            self._shown.clear()
        if kind == _TFJOB:
            self._follower.sees_tfjob = False
        if kind == _TFJOB and "(NotFound)" in errors:
            self._follower.tfjob_gone(now)
        elif words and self._follower.verdict is None:
            self._loop.note(f"{words}; the job goes on, trying again")

    def _delete(self, now: float) -> None:
        """Deletes the TFJob, unless it turns out to be done or deleted already."""
        if self._follower.is_disputed:
            self._look(now)
        if not self._follower.wants_deletion(now):
            return
        try:
            if not self._tfjob.delete():
                self._follower.tfjob_gone(now)
        except HostError as error:
            self._follower.asks_for_deletion()  # it may have reached the cluster
            self._tell_once(f"{error}; trying again to delete TFJob {self._tfjob.name}")
            return
        self._follower.asks_for_deletion()
        self._follower.deleted(time.monotonic())

    def _look(self, now: float) -> None:
        """Asks whether the TFJob is done, or was deleted, which a watch may not have shown yet."""
        try:
            state = self._tfjob.look()
        except HostError as error:
            self._tell_once(f"{error}; TFJob {self._tfjob.name} is deleted without a last look")
            return
        if state is None:
            self._follower.tfjob_gone(now)
        else:
            self._follower.saw_tfjob(state, now)

    def _tell_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            self._loop.note(words)
