"""A task's log, limited in size. A full disk ends the log, but not the task."""

import os
from typing import Optional

_LIMIT = 64 << 20  # bytes; a larger file is renamed to NAME.1


class LogFile:
    """Appends to a log file that only its owner can read.

    Args:
      path: the path of the file; `~` is the user's home. Missing folders are created.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)
        self._fd: Optional[int] = None
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
            while data and self._fd is not None:
                data = data[os.write(self._fd, data) :]
                if os.fstat(self._fd).st_size > _LIMIT:
                    os.replace(self._path, f"{self._path}.1")
                    os.close(self._fd)
                    self._open()
        except OSError as error:
            self._give_up(error)

    def new_error(self) -> Optional[str]:
        """Returns the error that ended the log, once; None if there is no new error."""
        error, self._error = self._error, None
        return error

    def close(self) -> None:
        """Closes the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._error = f"{self._path}: {error.strerror}; its log stops here"
