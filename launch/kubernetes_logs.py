"""Reads what the containers of a job write: a `kubectl logs --follow` for each pod."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from launch.kubectl import Kubectl, Stream, stamped_lines
from launch.kubernetes_manifests import CONTAINER
from launch.kubernetes_pods import Pod

_AGAIN_SECS = 1.0
_NEVER = float("inf")


@dataclass
class _Log:
    pod: Pod
    stream: Optional[Stream] = None
    last: str = ""  # time of the last line, as it came
    due: float = 0.0


class PodLogs:
    """The logs of all pods, each line once, across connections that end.

    Args:
      kubectl: the cluster.
      hear: is called in threads with what a stream delivers, for `take`.
    """

    def __init__(self, kubectl: Kubectl, hear: Callable[[Stream, Any], None]) -> None:
        self._kubectl, self._hear = kubectl, hear
        self._logs: dict[str, _Log] = {}

    def follow(self, pod: Pod) -> None:
        """Reads a pod's log from now on; call it whenever the pod has changed."""
        log = self._logs.setdefault(pod.uid, _Log(pod))
        if pod.state == "ended" and log.due != _NEVER:
            log.due = 0.0  # for what came between the stream's end and the container's
        log.pod = pod

    def keep_reading(self, now: float) -> None:
        """Opens the streams that are missing; call it in the main thread, now and then."""
        for log in self._logs.values():
            if log.stream is None and now >= log.due:
                since = [f"--since-time={log.last}"] if log.last else []
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
            has_ended = log.pod.state == "ended"
            log.due = _NEVER if has_ended else time.monotonic() + _AGAIN_SECS
            return None
        stamp, line = item
        if stamp:
            if log.last and _key(stamp) <= _key(log.last):
                return None  # had it before the connection ended
            log.last = stamp
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
