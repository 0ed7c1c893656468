"""A task's log: bounded in size, and never the end of a task when the disk is full."""

import os
from typing import Optional

_LIMIT = 64 << 20  # bytes; the part before is kept as NAME.1


class LogFile:
    """Appends to a file, which only its owner can read.

    Args:
      path: where; `~` is the user's home. Missing folders are made.

    Attributes:
      error: why nothing is written any more, if so.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)
        self._fd: Optional[int] = None
        self.error: Optional[str] = None
        self._is_told = False
        try:
            if not os.path.exists(os.path.dirname(self._path)):
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._open()
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Writes all of `data`, or gives up for good."""
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
        """The error, the first time that this is asked once there is one; else None."""
        found = None if self._is_told else self.error
        self._is_told = found is not None or self._is_told
        return found

    def close(self) -> None:
        """Closes the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _give_up(self, error: OSError) -> None:
        self.close()
        self.error = f"{self._path}: {error.strerror}; its log stops here"
