"""Reads the logs of a job's containers with one `kubectl logs --follow` for each pod."""

import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.log_place import LogPlace
from launch.backends.kubernetes.pod_template import CONTAINER
from launch.backends.kubernetes.pods import Pod
from launch.backends.kubernetes.streams import LogPart, Stream, stamped_lines

_AGAIN_SECS = 1.0
_LONGEST_AGAIN_SECS = 30.0
_REST_SECS = 3.0  # for the last lines of the previous pod
_HELD = 2000  # lines that are held at most

Line = tuple[Pod, str]  # a line of a log, and the pod that wrote it


@dataclass
class PodLog:
    """The log of one pod, across connections.

    `kubectl logs` finds pods by name, so a connection may reach the pod that replaced the one it
    was opened for. A connection is therefore opened only while the current watch of the pods shows
    the pod. If the first connection nevertheless reaches the pod's successor, the log of that one
    begins with the same line, so that its lines are known to be old. If a later connection gives
    lines without repeating the last one of the pod, they are held until a list that was asked for
    after its opening shows whether the pod still exists.

    Attributes:
      pod: the pod's newest state.
      watch: number of the watch that showed the pod last.
      before: the log of the previous pod with this name, while its connection is open.
      earlier: the log of the previous pod with this name, until this one's first line is there.
      stream: the open connection.
      place: the place in the log up to which lines were taken.
      due: when to open the next connection.
      wait: the time between two connections.
      opened: when the connection was opened.
      held: lines that may be another pod's.
      is_last: whether the pod had ended before the connection was opened.
      is_complete: whether the log was read to its end, or the pod is gone.
    """

    pod: Pod
    watch: int
    before: "Optional[PodLog]" = None
    earlier: "Optional[PodLog]" = None
    stream: Optional[Stream] = None
    place: LogPlace = field(default_factory=LogPlace)
    due: float = 0.0
    wait: float = _AGAIN_SECS
    opened: float = 0.0
    held: list[str] = field(default_factory=list)
    is_last: bool = False
    is_complete: bool = False

    def take(self, part: LogPart) -> Optional[bytes]:
        """Takes the next part of a line; returns its text, or None if it is old or cut."""
        earlier = self.earlier
        while earlier is not None and earlier.place.first is None:
            earlier = earlier.earlier
        if earlier is not None and self.place.first is None and part == earlier.place.first:
            self.place = earlier.place  # a connection for the previous pod has read this log
            self.place.resume()
        text = self.place.take(part)
        if self.place.first is not None:
            self.earlier = None
        return text

    def ended(self, stream: Stream, now: float) -> Optional[bytes]:
        """Records the end of the connection; returns a last line without a line end."""
        code, errors = stream.code, stream.last_words()
        stream.close()
        self.stream = None
        has_ended = self.pod.state == "ended"
        self.is_complete |= (self.is_last and code == 0) or (has_ended and "NotFound" in errors)
        if self.is_complete:
            return self.place.rest()
        # What the container wrote between the end of the stream and its own end is still missing.
        self.wait = _AGAIN_SECS if stream.has_items else min(2 * self.wait, _LONGEST_AGAIN_SECS)
        self.due = 0.0 if has_ended and code == 0 else now + self.wait
        return None


class PodLogs:
    """Reads the logs of all pods, each line once, over connections that may end at any time.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      hear: a function to call in threads with each stream and item; it must pass them to `take`.
    """

    def __init__(self, kubectl: Kubectl, hear: Callable[[Stream, Any], None]) -> None:
        self._kubectl, self._hear = kubectl, hear
        self._logs: dict[str, PodLog] = {}  # pod's name -> the log of the newest pod of that name
        self._of_stream: dict[Stream, PodLog] = {}
        self._watch = 0

    def follow(self, pod: Pod, now: float) -> None:
        """Reads a pod's log from now on; call it whenever a watch shows the pod."""
        log = self._logs.get(pod.name)
        if log is None or log.pod.uid != pod.uid:
            if log is not None:
                log.due = now + _REST_SECS
                if log.place.is_doubtful:  # the connection is one to the new pod
                    self._end(log)
            before = log if log is not None and log.stream is not None else None
            log = self._logs[pod.name] = PodLog(pod, self._watch, before, log)
        if pod.state == "ended" and log.pod.state != "ended":
            log.due = 0.0
        log.pod, log.watch = pod, self._watch

    def watch_ended(self) -> None:
        """Records that the watch of the pods has ended: a pod may be another one by now."""
        self._watch += 1

    def gone(self, uid: str) -> None:
        """Records that a pod does not exist any more: its log cannot be read again."""
        for log in self._logs.values():
            if log.pod.uid == uid:
                if log.place.is_doubtful:
                    self._end(log)
                log.held = []
                log.is_complete = log.stream is None
                log.is_last = True

    def listed(self, uids: Container[str], asked: float) -> list[Line]:
        """Takes a list of the pods that existed after the time `asked`; returns the lines held."""
        found: list[Line] = []
        for log in self._logs.values():
            if log.held and log.opened < asked and log.pod.uid in uids:
                log.place.is_doubtful = False
                found += [(log.pod, line) for line in log.held]
                log.held = []
        return found

    @property
    def wants_list(self) -> bool:
        """Whether lines are held until a list of the pods is there."""
        return any(log.held for log in self._logs.values())

    def keep_reading(self, now: float) -> None:
        """Opens the streams that are missing; call it in the main thread, now and then."""
        for log in self._logs.values():
            if log.before is not None and now >= log.before.due:
                self._end(log.before)
                log.before = None
            is_free = log.stream is None and log.before is None and not log.held
            if is_free and log.watch == self._watch and not log.is_complete and now >= log.due:
                log.place.resume()
                log.is_last, log.opened = log.pod.state == "ended", now
                since = [f"--since-time={log.place.since}"] if log.place.since else []
                command = self._kubectl.command(
                    "logs", log.pod.name, f"--container={CONTAINER}", "--follow", "--timestamps",
                    *since,
                )  # fmt: skip
                log.stream = Stream(command, stamped_lines, self._hear)
                self._of_stream[log.stream] = log

    def take(self, stream: Stream, item: Any) -> list[Line]:
        """Takes an item of a stream; returns the lines that are new, each with its pod."""
        log = self._of_stream.get(stream)
        if log is None or log.stream is not stream:
            return []
        line = log.take(item) if item is not None else log.ended(stream, time.monotonic())
        if item is None:
            del self._of_stream[stream]
            newest = self._logs[log.pod.name]
            if newest.before is log:
                newest.before = None
                line = line or log.place.rest()
        if line is None:
            return []
        log.held.append(line.decode(errors="replace"))
        if log.place.is_doubtful and len(log.held) < _HELD:
            return []
        lines, log.held = log.held, []
        return [(log.pod, line) for line in lines]

    @property
    def are_complete(self) -> bool:
        """Whether the log of every pod that has ended was read to its end."""
        logs = self._logs.values()
        return all(log.is_complete for log in logs if log.pod.state == "ended")

    def has_ended(self, task: str) -> bool:
        """Returns whether a pod of this task has ended whose log is read, or was."""
        logs = self._logs.values()
        return any(log.pod.task == task and log.pod.state == "ended" for log in logs)

    def close(self) -> None:
        """Ends all streams."""
        for stream in self._of_stream:
            stream.close()

    def _end(self, log: PodLog) -> None:
        if log.stream is not None:
            self._of_stream.pop(log.stream, None)
            log.stream.close()
            log.stream = None
