"""Reads the logs of a job's containers with one `kubectl logs --follow` for each pod."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import Kubectl, Stream, stamped_lines
from launch.backends.kubernetes.manifests import CONTAINER
from launch.backends.kubernetes.pods import Pod

_AGAIN_SECS = 1.0
_REST_SECS = 3.0  # for the last lines of the previous pod
_NEVER = float("inf")


@dataclass
class PodLog:
    """The log of one pod, and of later pods with the same name, across connections.

    A new connection can start only at a time, so it repeats the lines of that time. `kubectl logs`
    finds pods by name, so a connection may reach the pod that replaced the one it was opened for;
    a name never has more than one pod at a time.
    """

    pod: Pod
    stream: Optional[Stream] = None
    last: str = ""  # timestamp of the last line, as received
    last_count: int = 0  # received lines with that timestamp; several lines can share one
    since: str = ""  # timestamp from which the stream repeats earlier lines
    skipped: int = 0  # repeated lines with that timestamp, still to be skipped
    due: float = 0.0
    doubtful: float = _NEVER  # when to close the stream that was opened for the previous pod

    def renew(self, pod: Pod, now: float) -> None:
        """Records that a new pod has this name."""
        self.pod, self.due = pod, 0.0
        self.doubtful = now + _REST_SECS

    def resume(self) -> None:
        """Prepares a new connection: from the last line's time on, or from the pod's first line."""
        if _key(self.last) < _key(self.pod.created):
            self.last, self.last_count = "", 0
        self.doubtful = _NEVER
        self.since, self.skipped = self.last, self.last_count

    def is_new(self, stamp: str) -> bool:
        """Whether a line with this timestamp was not received over an earlier connection."""
        if self.since and _key(stamp) < _key(self.since):
            return False
        if stamp == self.since and self.skipped:
            self.skipped -= 1
            return False
        self.last_count = self.last_count + 1 if stamp == self.last else 1
        self.last = stamp
        return True


class PodLogs:
    """Reads the logs of all pods, each line once, over connections that may end at any time.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      hear: a function to call in threads with each stream and item; it must pass them to `take`.
    """

    def __init__(self, kubectl: Kubectl, hear: Callable[[Stream, Any], None]) -> None:
        self._kubectl, self._hear = kubectl, hear
        self._logs: dict[str, PodLog] = {}

    def follow(self, pod: Pod) -> None:
        """Reads a pod's log from now on; call it whenever the pod has changed."""
        log = self._logs.setdefault(pod.name, PodLog(pod))
        if pod.uid != log.pod.uid:
            log.renew(pod, time.monotonic())
        if pod.state == "ended" and log.due != _NEVER:
            log.due = 0.0  # for lines between the end of the stream and the end of the container
        log.pod = pod

    def keep_reading(self, now: float) -> None:
        """Opens the streams that are missing; call it in the main thread, now and then."""
        for log in self._logs.values():
            if log.stream is not None and now >= log.doubtful:
                log.stream.close()
                log.stream = None
            if log.stream is None and now >= log.due:
                log.resume()
                since = [f"--since-time={log.since}"] if log.since else []
                command = self._kubectl.command(
                    "logs", log.pod.name, f"--container={CONTAINER}", "--follow", "--timestamps",
                    *since,
                )  # fmt: skip
                log.stream = Stream(command, stamped_lines, self._hear)

    def take(self, stream: Stream, item: Any) -> Optional[tuple[Pod, str]]:
        """Takes an item of a stream; returns a new line with its pod, or None for anything else."""
        log = next((one for one in self._logs.values() if one.stream is stream), None)
        if log is None:
            return None
        if item is None:
            stream.close()
            log.stream = None
            if log.doubtful < _NEVER:
                log.due = 0.0
            else:
                has_ended = log.pod.state == "ended"
                log.due = _NEVER if has_ended else time.monotonic() + _AGAIN_SECS
            return None
        stamp, line = item
        if stamp and not log.is_new(stamp):
            return None
        return log.pod, line.decode(errors="replace")

    @property
    def are_complete(self) -> bool:
        """Whether the log of every pod that has ended was read to its end."""
        return all(log.due == _NEVER for log in self._logs.values() if log.pod.state == "ended")

    def close(self) -> None:
        """Ends all streams."""
        for log in self._logs.values():
            if log.stream is not None:
                log.stream.close()


def _key(stamp: str) -> tuple[str, str]:
    """Returns a sort key for timestamps, whose fractions may lack trailing zeros."""
    seconds, _, fraction = stamp.rstrip("Z").partition(".")
    return seconds, fraction.ljust(9, "0")
