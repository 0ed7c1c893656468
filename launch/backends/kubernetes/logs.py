"""Reads what the containers of a job write: a `kubectl logs --follow` for each pod."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import Kubectl, Stream, stamped_lines
from launch.backends.kubernetes.manifests import CONTAINER
from launch.backends.kubernetes.pods import Pod

_AGAIN_SECS = 1.0
_REST_SECS = 3.0  # for what the pod before has written last
_NEVER = float("inf")


@dataclass
class PodLog:
    """The log of one pod, and of those that follow it under its name, across connections.

    Kubernetes knows lines by their times only, and a new connection delivers those of the time
    asked for once more. It knows pods by their names only, so that a connection may turn out to be
    one to the pod that follows: there is never more than one for a name.
    """

    pod: Pod
    stream: Optional[Stream] = None
    last: str = ""  # time of the last line, as it came
    last_count: int = 0  # lines of that very time: a clock may stand still between two
    since: str = ""  # from when on the stream delivers again what came before it
    skipped: int = 0  # lines of that very time that came before
    due: float = 0.0
    doubtful: float = _NEVER  # when to give up the stream that was opened for the pod before

    def renew(self, pod: Pod, now: float) -> None:
        """Takes in that another pod has the name now."""
        self.pod, self.due = pod, 0.0
        self.doubtful = now + _REST_SECS

    def resume(self) -> None:
        """Prepares a new connection: from the last line's time on, or from the pod's first line."""
        if _key(self.last) < _key(self.pod.created):
            self.last, self.last_count = "", 0
        self.doubtful = _NEVER
        self.since, self.skipped = self.last, self.last_count

    def is_new(self, stamp: str) -> bool:
        """Whether a line of this time has not come before the connection was made."""
        if self.since and _key(stamp) < _key(self.since):
            return False
        if stamp == self.since and self.skipped:
            self.skipped -= 1
            return False
        self.last_count = self.last_count + 1 if stamp == self.last else 1
        self.last = stamp
        return True


class PodLogs:
    """The logs of all pods, each line once, across connections that end.

    Args:
      kubectl: the cluster.
      hear: is called in threads with what a stream delivers, for `take`.
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
            log.due = 0.0  # for what came between the stream's end and the container's
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
        """Takes what a stream has delivered; returns a new line and its pod."""
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
        """Whether every pod that has ended was read to its end."""
        return all(log.due == _NEVER for log in self._logs.values() if log.pod.state == "ended")

    def close(self) -> None:
        """Ends all streams."""
        for log in self._logs.values():
            if log.stream is not None:
                log.stream.close()


def _key(stamp: str) -> tuple[str, str]:
    """Orders times whose fractions have lost their last zeros."""
    seconds, _, fraction = stamp.rstrip("Z").partition(".")
    return seconds, fraction.ljust(9, "0")
