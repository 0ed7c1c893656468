"""The log of a task: secrets masked, limited in size; old logs go."""

import contextlib
import math
import os
import re
import shutil
import time
from collections.abc import Iterable
from typing import Optional

_SHORTEST = 6  # characters; shorter parts would mask much that is no secret
_MASK = "***"


class Mask:
    """Replaces values by `***`.

    Output comes line by line, so each line of a value, such as a key, is masked by itself: those of
    at least six characters, without the space around them.

    Args:
      values: the values to mask.

    Attributes:
      longest: the bytes of the longest part that is masked; 0 if there is none.
    """

    def __init__(self, values: Iterable[str]) -> None:
        lines = {line.strip() for value in values for line in value.split("\n")}
        # Longer ones first: a shorter one may be a part of a longer one.
        self._parts = sorted((line for line in lines if len(line) >= _SHORTEST), key=len)[::-1]
        self._encoded = [os.fsencode(part) for part in self._parts]
        self.longest = max(map(len, self._encoded), default=0)

    def text(self, text: str) -> str:
        """Returns text with the values masked."""
        for part in self._parts:
            text = text.replace(part, _MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """Returns bytes of an output with the values masked."""
        for part in self._encoded:
            data = data.replace(part, _MASK.encode())
        return data

    def cut(self, data: bytes) -> int:
        """Returns where to cut a part off a long line, so that no value is divided."""
        end = len(data) - max(0, self.longest - 1)  # a value that begins before is all there
        for part in self._encoded:
            found = data.find(part, max(0, end - len(part) + 1))
            end = found if 0 < found < end else end
        return end


_LIMIT = 64 << 20  # bytes; a larger file is renamed to NAME.1
_AGAIN_SECS = 60.0  # after an error, until the log is tried again


class LogFile:
    """Appends to a log file that only its owner can read.

    Args:
      path: the path of the file; `~` is the user's home. Missing folders are created.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)
        self._fd: Optional[int] = None
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
            while data and self._fd is not None:
                data = data[os.write(self._fd, data) :]
                self._gap = b"" if not data else self._gap
                if os.fstat(self._fd).st_size > _LIMIT:
                    os.replace(self._path, f"{self._path}.1")
                    self.close()
                    self._open()
        except OSError as error:
            self._give_up(error)

    def new_error(self) -> Optional[str]:
        """Returns the error that stopped the log, once; None if there is no new error."""
        error, self._error = self._error, None
        return error

    def close(self) -> None:
        """Closes the file."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self._try_again = math.inf

    def _open(self) -> None:
        if not os.path.exists(os.path.dirname(self._path)):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._fd, self._try_again = _append_to(self._path), math.inf

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


_KEPT_SECS = 30 * 86400.0
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def forget(parent: str) -> None:
    """Removes the folders of runs in `parent` to which nothing was written for a month.

    Errors are ignored, since another agent may remove the same folders.

    Args:
      parent: the path of a folder with a folder for each run; `~` is the user's home.
    """
    parent = os.path.expanduser(parent)
    with contextlib.suppress(OSError):  # no run has written here yet
        for name in filter(_RUN_ID.fullmatch, os.listdir(parent)):
            folder = os.path.join(parent, name)
            with contextlib.suppress(OSError):
                files = [folder, *(entry.path for entry in os.scandir(folder))]
                if max(map(os.path.getmtime, files)) < time.time() - _KEPT_SECS:
                    shutil.rmtree(folder, ignore_errors=True)
