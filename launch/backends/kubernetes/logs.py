"""Reads the logs of a job's containers with one `kubectl logs --follow` for each pod.

API servers and networks end a connection at times. The next one is opened after a poll that shows
the pod, because its name may be another pod's by then, and repeats the lines of its last second.
"""

import math
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Optional

from launch.agent.processes import start_child
from launch.backends.kubernetes.kubectl import ForbiddenError, Kubectl
from launch.backends.kubernetes.manifests import CONTAINER
from launch.backends.kubernetes.state import Pod

_RARELY_SECS = 60.0  # between two tries without the right to read logs
LONGEST_PART = 1 << 16  # bytes of a line; a longer one is split into parts
# Kubelets write every digit, so that later stamps are greater.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) ")

Event = Callable[[], None]  # called in the main thread


class PodLog:
    """The log of one pod, across connections.

    Attributes:
      pod: the pod's newest state.
      process: the open connection.
      since: the timestamp of the newest line that was taken, as kubectl writes it; "" before.
      is_last: whether the pod had ended before the connection was opened.
      is_complete: whether no line can come any more.
    """

    def __init__(self, pod: Pod) -> None:
        self.pod, self.since = pod, ""
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.is_last = self.is_complete = False

    def new_lines(self, parts: Iterable[bytes]) -> Iterator[str]:
        """Yields the text of the lines of a connection that are new.

        A connection repeats lines before its new ones. What has no timestamp, such as the rest of a
        long line, is as new as the line before. A line that the end of the connection has cut comes
        again with the next one, unless this is the last.

        Args:
          parts: the lines of `kubectl logs --timestamps`; those that are longer than
            `LONGEST_PART` bytes in parts of this size.
        """
        newest = self.since
        is_new = not newest
        for part in parts:
            is_cut = not part.endswith(b"\n") and len(part) < LONGEST_PART
            if is_cut and not self.is_last:
                return
            stamp = _STAMP.match(part)
            if stamp is not None:
                moment = stamp[1].decode()
                is_new = is_new or moment > newest
                self.since = moment if is_new else self.since
                part = part[stamp.end() :]
            if is_new:
                yield part.rstrip(b"\r\n").decode(errors="replace")


class PodLogs:
    """Reads the logs of all pods, each line once.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      put: a function that threads call to have an event called in the main thread.
      take: a function that takes a pod and a line of its log, in the main thread.
      since: the time before which lines are not read; "" for all.

    Attributes:
      one_ended: whether a connection has ended; the user of this object resets it.
      refusal: what is missing, if the user may not read logs.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        put: Callable[[Event], None],
        take: Callable[[Pod, str], None],
        since: str = "",
    ) -> None:
        self._kubectl, self._put, self._take, self._since = kubectl, put, take, since
        self._logs: dict[str, PodLog] = {}  # by the pod's uid
        self.one_ended = False
        self.refusal: Optional[ForbiddenError] = None
        self._pause = -math.inf  # until when no log is tried

    @property
    def are_complete(self) -> bool:
        """Whether the log of every pod that has ended was read to its end."""
        return all(log.is_complete or log.pod.state != "ended" for log in self._logs.values())

    def read(self, pods: Iterable[Pod]) -> None:
        """Opens the connections that are missing, for the pods that a poll has just shown."""
        shown = {pod.uid: pod for pod in pods}
        for uid, pod in shown.items():
            if uid not in self._logs and (pod.state == "running" or pod.code is not None):
                self._logs[uid] = PodLog(pod)
        for uid, log in self._logs.items():
            log.pod = shown.get(uid, replace(log.pod, state="ended"))
            if log.process is not None or log.is_complete:
                continue
            # A pod that is gone has no log any more, and one without an exit code no container.
            has_container = log.pod.state != "ended" or log.pod.code is not None
            is_refused = self.refusal is not None and log.pod.state == "ended"
            log.is_complete = uid not in shown or not has_container or is_refused
            if not log.is_complete and time.monotonic() >= self._pause:
                self._open(log)

    def close(self) -> None:
        """Ends all connections."""
        for log in self._logs.values():
            if log.process is not None:
                log.process.kill()
                log.process.wait()

    def _open(self, log: PodLog) -> None:
        log.is_last = log.pod.state == "ended"
        from_then = log.since or self._since
        since = [f"--since-time={from_then}"] if from_then else []
        words = ("logs", log.pod.name, f"--container={CONTAINER}", "--follow", "--timestamps")
        command = self._kubectl.command(*words, *since)
        try:
            log.process = start_child(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except OSError:  # such as too many open files, which may pass: the next poll tries again
            return
        try:
            threading.Thread(target=self._read, args=(log, log.process), daemon=True).start()
        except RuntimeError:  # no more threads, which may pass as well
            with log.process as process:
                process.kill()
            log.process = None

    def _read(self, log: PodLog, process: "subprocess.Popen[bytes]") -> None:
        """Passes on the new lines of a connection, in a thread."""
        output, errors = process.stdout, process.stderr
        assert output is not None
        assert errors is not None
        with process:
            for line in log.new_lines(iter(lambda: output.readline(LONGEST_PART), b"")):
                self._put(partial(self._take, log.pod, line))
            said = errors.read(LONGEST_PART).decode(errors="replace")
        self._put(partial(self._ended, log, process.returncode, said))

    def _ended(self, log: PodLog, code: int, errors: str) -> None:
        log.process = None
        error = self._kubectl.error(errors) if code else None
        if isinstance(error, ForbiddenError):
            self.refusal, self._pause = error, time.monotonic() + _RARELY_SECS
            return
        self.one_ended, self.refusal = True, None
        # What a container writes between the end of a connection and its own end is still missing.
        log.is_complete = log.is_last and code == 0
