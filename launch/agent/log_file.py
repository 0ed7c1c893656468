"""A task's log, limited in size, and when its lines came. A full disk ends both, but not the task.

Beside `worker-0.log`, `worker-0.times` has a line `SECONDS OFFSET` for each moment: what stands at
OFFSET bytes of the log and behind was written SECONDS after 1970 or later, by this host's clock.
"""

import contextlib
import os
import time
from typing import Optional

_LIMIT = 64 << 20  # bytes; a larger file is renamed to NAME.1
_APART_SECS = 0.2  # between two moments


class LogFile:
    """Appends to a log file that only its owner can read.

    Args:
      path: the path of the file; `~` is the user's home. Missing folders are created.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)
        stem, ending = os.path.splitext(self._path)
        self._times_path = f"{stem}.times" if ending == ".log" else os.devnull
        self._fd: Optional[int] = None
        self._times_fd: Optional[int] = None
        self._size = 0
        self._next_moment = 0.0
        self._error: Optional[str] = None
        try:
            if not os.path.exists(os.path.dirname(self._path)):
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._open()
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Writes all of `data`; after the first error, closes the file and ignores further data."""
        try:
            self._note_the_moment()
            while data and self._fd is not None:
                data = data[os.write(self._fd, data) :]
                self._size = os.fstat(self._fd).st_size
                if self._size > _LIMIT:
                    os.replace(self._path, f"{self._path}.1")
                    if self._times_path != os.devnull:
                        with contextlib.suppress(OSError):
                            os.replace(self._times_path, f"{self._times_path}.1")
                    self.close()
                    self._open()
                    self._note_the_moment()
        except OSError as error:
            self._give_up(error)

    def new_error(self) -> Optional[str]:
        """Returns the error that ended the log, once; None if there is no new error."""
        error, self._error = self._error, None
        return error

    def close(self) -> None:
        """Closes the files."""
        for fd in (self._fd, self._times_fd):
            if fd is not None:
                os.close(fd)
        self._fd = self._times_fd = None

    def _open(self) -> None:
        self._fd = _append_to(self._path)
        self._size, self._next_moment = os.fstat(self._fd).st_size, 0.0
        with contextlib.suppress(OSError):
            self._times_fd = _append_to(self._times_path)

    def _note_the_moment(self) -> None:
        """Writes when the next bytes come, unless the last moment was just now."""
        now = time.monotonic()
        if self._times_fd is None or now < self._next_moment:
            return
        self._next_moment = now + _APART_SECS
        with contextlib.suppress(OSError):  # `logs` does without; the log itself counts
            os.write(self._times_fd, b"%.3f %d\n" % (time.time(), self._size))

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._error = f"{self._path}: {error.strerror}; its log stops here"


def _append_to(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
