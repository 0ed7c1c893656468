"""Writes a task's log in a thread, so that the agent goes on while its disk does not answer."""

import contextlib
import queue
import threading
from typing import Optional

from launch.agent.log_file import LogFile

_BEHIND = 4 << 20  # bytes
_threads: dict[str, threading.Thread] = {}  # path -> the thread that has begun to write it last


class LogWriter:
    """A log file whose writes never wait; what is still to be written waits in memory.

    Args:
      path: the path of the file, as for `LogFile`.

    Raises:
      OSError: this process cannot start a thread.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._to_write: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        self._errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        # The first is counted by the caller's thread, and the second by the thread that writes.
        self._queued, self._written = 0, 0
        earlier = _threads.get(path)  # of a task that was started again, perhaps still at work
        self._thread = threading.Thread(target=self._work, args=(earlier,), daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(f"{path} cannot be written: {error}") from None
        _threads[path] = self._thread

    def write(self, data: bytes) -> None:
        """Queues `data`."""
        self._queued += len(data)
        self._to_write.put(data)

    @property
    def is_behind(self) -> bool:
        """Whether so much waits in memory that the caller should not write more for now."""
        return self._queued - self._written > _BEHIND

    def new_errors(self) -> list[str]:
        """Returns the errors since the last call that keep lines from the log."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._errors.get_nowait())
        return found

    def close(self) -> None:
        """Closes the log once all is written, without waiting for that."""
        self._to_write.put(None)

    def wait(self, secs: float) -> bool:
        """Waits at most `secs` until a closed log is written; returns whether it is."""
        self._thread.join(secs)
        return not self._thread.is_alive()

    def _work(self, earlier: Optional[threading.Thread]) -> None:
        if earlier is not None:
            earlier.join()
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
