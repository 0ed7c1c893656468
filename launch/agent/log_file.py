"""A task's log, limited in size, and when its lines came. A full disk ends neither task nor log.

Beside `worker-0.log`, `worker-0.times` has a line `SECONDS OFFSET` for each moment: what stands at
OFFSET bytes of the log and behind was written SECONDS after 1970 or later, by this host's clock.
"""

import contextlib
import math
import os
import time
from typing import Optional

_LIMIT = 64 << 20  # bytes; a larger file is renamed to NAME.1
_APART_SECS = 0.2  # between two moments
_AGAIN_SECS = 60.0  # after an error, until the log is tried again


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
        self._gap = b""  # what is said of lines that an error has kept from the log
        self._try_again = math.inf
        try:
            self._open()
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Writes all of `data`; after an error, ignores data for a minute, then tries again."""
        try:
            if time.monotonic() >= self._try_again:
                self._open()
                data = self._gap + data
            self._note_the_moment()
            while data and self._fd is not None:
                data = data[os.write(self._fd, data) :]
                self._gap = b"" if not data else self._gap
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
        """Returns the error that stopped the log, once; None if there is no new error."""
        error, self._error = self._error, None
        return error

    def close(self) -> None:
        """Closes the files."""
        for fd in (self._fd, self._times_fd):
            if fd is not None:
                os.close(fd)
        self._fd = self._times_fd = None
        self._try_again = math.inf

    def _open(self) -> None:
        if not os.path.exists(os.path.dirname(self._path)):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._fd, self._try_again = _append_to(self._path), math.inf
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
        self._try_again = time.monotonic() + _AGAIN_SECS
        if not self._gap:  # else the last attempt has failed, too
            self._error = (
                f"{self._path}: {error.strerror}; lines are left out until that is repaired"
            )
            self._gap = f"\n[lines are missing here: {error.strerror}]\n".encode()


def _append_to(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
