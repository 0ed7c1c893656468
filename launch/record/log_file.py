"""A log file of limited size, which outlives a full disk."""

import os
import time
from typing import Optional

_LIMIT = 64 << 20  # bytes; a larger file is renamed to NAME.1
_AGAIN_SECS = 60.0  # after an error, until the log is tried again


class LogFile:
    """Appends to a log file that only its owner can read.

    Args:
      path: the path of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._gap = b""  # what is said of lines that an error has kept from the log
        self._try_again = 0.0

    def write(self, data: bytes) -> None:
        """Writes all of `data`; after an error, ignores data for a minute, then tries again."""
        if time.monotonic() < self._try_again:
            return
        try:
            if self._fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._fd = os.open(self._path, flags, mode=0o600)
            data = self._gap + data
            while data:
                data = data[os.write(self._fd, data) :]
            self._gap = b""
            if os.fstat(self._fd).st_size > _LIMIT:
                os.replace(self._path, f"{self._path}.1")
                self.close()
        except OSError as error:
            self.close()
            self._gap = f"\n[lines are missing here: {error.strerror}]\n".encode()
            self._try_again = time.monotonic() + _AGAIN_SECS

    def close(self) -> None:
        """Closes the file; another line opens it again."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
