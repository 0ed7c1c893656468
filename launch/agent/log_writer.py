"""Writes a task's log in a thread: a disk that does not answer holds up neither task nor agent."""

import contextlib
import queue
import threading
from typing import Optional

from launch.agent.log_file import LogFile

_MOST_WAITING = 16 << 20  # bytes
_CLOSE_SECS = 1.0
_GAP = b"\n[lines are missing here: the disk did not answer]\n"


class LogWriter:
    """A log file whose writes never wait.

    While the disk does not answer, what is written waits in memory, up to 16 MiB.

    Args:
      path: the path of the file, as for `LogFile`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._to_write: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        self._errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        # The first is counted by the caller's thread, and the second by the thread that writes.
        self._queued, self._written = 0, 0
        self._is_full = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Queues `data`; drops it if too much is waiting already."""
        if self._queued - self._written > _MOST_WAITING:
            if not self._is_full:
                self._errors.put(f"{self._path}: the disk does not answer; lines are missing in it")
            self._is_full = True
            return
        if self._is_full:
            data, self._is_full = _GAP + data, False
        self._queued += len(data)
        self._to_write.put(data)

    def new_error(self) -> Optional[str]:
        """Returns an error that keeps lines from the log, once; None if there is no new error."""
        with contextlib.suppress(queue.Empty):
            return self._errors.get_nowait()
        return None

    def close(self) -> None:
        """Closes the log once all is written; after a second, leaves that to the thread."""
        self._to_write.put(None)
        self._thread.join(_CLOSE_SECS)

    def _work(self) -> None:
        log = LogFile(self._path)
        self._note_an_error_of(log)
        while (data := self._to_write.get()) is not None:
            log.write(data)
            self._written += len(data)
            self._note_an_error_of(log)
        log.close()

    def _note_an_error_of(self, log: LogFile) -> None:
        error = log.new_error()
        if error is not None:
            self._errors.put(error)
