"""Reads the logs of a job's containers with one `kubectl logs --follow` for each pod.

API servers and networks end a connection at times. The next one is opened after a poll that shows
the pod, because its name may be another pod's by then, and repeats the lines of its last second.
"""

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Optional

from launch.agent.processes import die_with
from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.pod_template import CONTAINER
from launch.backends.kubernetes.state import Pod

LONGEST_PART = 1 << 16  # bytes of a line; a longer one is split into parts
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d)")

Put = Callable[[Callable[[], None]], None]  # passes a function to the main thread


class LogPlace:
    """The place in a log up to which its lines were taken, across connections.

    Attributes:
      since: the timestamp of the last line that was taken; "" before.
      rest: a last line that the end of the connection has cut; None if it has cut none.
    """

    def __init__(self) -> None:
        self.since = ""
        self.rest: Optional[str] = None
        self._last = (b"", b"")  # the same timestamp, in a form that can be compared
        self._count = 0  # lines taken with that timestamp
        self._foreign = b""  # the last line without a timestamp

    def new_lines(self, parts: Iterable[bytes]) -> Iterator[str]:
        """Yields the text of the lines of a connection that are new.

        Args:
          parts: the lines of `kubectl logs --timestamps`; those that are longer than
            `LONGEST_PART` bytes in parts of this size.
        """
        repeated, is_repeating = self._count, self._count > 0
        begins_line, is_new = True, True
        self.rest = None
        for part in parts:
            ends_line = part.endswith(b"\n")
            text = part.rstrip(b"\r\n")
            stamp = _STAMP.match(part) if begins_line else None
            is_cut = begins_line and not ends_line and len(part) < LONGEST_PART
            if stamp is not None:
                text = text[stamp.end() + 1 :]
                order = (stamp[1], (stamp[2] or b"").ljust(9, b"0"))
                is_new = not is_repeating or order > self._last
                if not is_new and order == self._last:
                    is_new, repeated = repeated == 0, max(repeated - 1, 0)
                is_repeating = is_repeating and not is_new
                if is_new and is_cut:
                    self.rest = text.decode(errors="replace")
                elif is_new:
                    self._count = self._count + 1 if order == self._last else 1
                    self._last, self.since = order, stamp[0].decode()
            elif begins_line and not is_cut:  # the node's own words, such as why it has no log
                is_new, self._foreign = text != self._foreign, text
            begins_line = ends_line
            if is_new and not is_cut:
                yield text.decode(errors="replace")


@dataclass
class _PodLog:
    """The log of one pod, across connections.

    Attributes:
      pod: the pod's newest state.
      place: the place up to which lines were taken.
      process: the open connection.
      is_last: whether the pod had ended before the connection was opened.
      is_gone: whether the pod does not exist any more.
      is_read: whether the log was read to its end.
    """

    pod: Pod
    place: LogPlace = field(default_factory=LogPlace)
    process: "Optional[subprocess.Popen[bytes]]" = None
    is_last: bool = False
    is_gone: bool = False
    is_read: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether no line can come any more."""
        return self.is_read or (self.is_gone and self.process is None)


class PodLogs:
    """Reads the logs of all pods, each line once.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      put: a function that threads call to have another one called in the main thread.
      take: a function that takes a pod and a line of its log, in the main thread.
    """

    def __init__(self, kubectl: Kubectl, put: Put, take: Callable[[Pod, str], None]) -> None:
        self._kubectl, self._put, self._take = kubectl, put, take
        self._logs: dict[str, _PodLog] = {}  # by the pod's uid

    def follow(self, pods: Iterable[Pod]) -> None:
        """Opens the connections that are missing, for the pods that a poll has just shown."""
        shown = {pod.uid: pod for pod in pods}
        for uid, pod in shown.items():
            has_started = pod.has_log and (pod.state == "running" or pod.code is not None)
            if has_started and uid not in self._logs:
                self._logs[uid] = _PodLog(pod)
            if uid in self._logs:
                self._go_on(self._logs[uid], pod)
        for uid, log in self._logs.items():
            log.is_gone = uid not in shown

    @property
    def are_complete(self) -> bool:
        """Whether the log of every pod that has ended was read to its end."""
        ended = (log for log in self._logs.values() if log.is_gone or log.pod.state == "ended")
        return all(log.is_complete for log in ended)

    @property
    def are_ending(self) -> bool:
        """Whether a container has ended, as far as its log shows, and no poll has shown it yet."""
        return any(
            log.process is None and not log.is_gone and log.pod.state == "running"
            for log in self._logs.values()
        )

    def has_ended(self, task: str) -> bool:
        """Returns whether a pod of this task has ended whose log is read, or was."""
        logs = self._logs.values()
        return any(log.pod.task == task and log.pod.state == "ended" for log in logs)

    def close(self) -> None:
        """Ends all connections."""
        for log in self._logs.values():
            if log.process is not None:
                log.process.kill()
                log.process.wait()

    def _go_on(self, log: _PodLog, pod: Pod) -> None:
        log.pod = pod
        if log.process is not None or log.is_read:
            return
        if pod.state == "ended" and pod.code is None:  # as after an eviction: it has no container
            log.is_read = True
        else:
            self._open(log)

    def _open(self, log: _PodLog) -> None:
        log.is_last = log.pod.state == "ended"
        since = [f"--since-time={log.place.since}"] if log.place.since else []
        command = self._kubectl.command(
            "logs", log.pod.name, f"--container={CONTAINER}", "--follow", "--timestamps", *since
        )
        launcher = os.getpid()
        try:
            log.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=lambda: die_with(launcher),
            )
        except OSError:  # such as too many open files, which may pass: the next poll tries again
            return
        threading.Thread(target=self._read, args=(log, log.process), daemon=True).start()

    def _read(self, log: _PodLog, process: "subprocess.Popen[bytes]") -> None:
        """Passes on the new lines of a connection, in a thread."""
        if process.stdout is not None:
            with process.stdout as output:
                for line in log.place.new_lines(iter(lambda: output.readline(LONGEST_PART), b"")):
                    self._put(partial(self._take, log.pod, line))
        process.wait()
        self._put(partial(self._ended, log))

    def _ended(self, log: _PodLog) -> None:
        process, log.process = log.process, None
        # What a container writes between the end of a connection and its own end is still missing.
        log.is_read = log.is_last and process is not None and process.returncode == 0
        if log.is_read and log.place.rest is not None:
            self._take(log.pod, log.place.rest)
