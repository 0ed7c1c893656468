"""output.log of a run: the lines of all its tasks and of its launcher; who writes it, who reads it.

2026-01-31T12:00:00.123Z [worker/0 node1] step 10/282  loss 2.1  512 images/s
2026-01-31T12:00:01.456Z worker/0 on node1: exit code 1; restart 1 of 3 in 1 s
"""

import datetime
import io
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Optional, TextIO, cast

_LONGEST_LINE = 1 << 16  # bytes; a longer line is given in parts
_LINE = re.compile(
    r"(?:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) )?(?:\[(\w+/\d+) (\S+)\] )?(.*)", re.S
)


def utc(secs: float) -> str:
    """Returns a time in seconds since 1970 as `2026-01-31T12:00:00.123Z`; times sort as texts."""
    moment = datetime.datetime.fromtimestamp(max(secs, 0.0), datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class _Writer(io.TextIOBase):
    """A stream of whole lines into a log that only its owner can read, with the time before each.

    After an error, such as a full disk, lines are left out until one can be written again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._gap = b""  # what is said of lines that an error has kept from the log

    def write(self, text: str) -> int:
        now = utc(time.time())
        lines = "".join(f"{now} {line}\n" for line in text.removesuffix("\n").split("\n"))
        self._append(lines.encode(errors="replace"))
        return len(text)

    def _append(self, data: bytes) -> None:
        try:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            data = self._gap + data
            while data:
                data = data[os.write(self._fd, data) :]
            self._gap = b""
        except OSError as error:
            if self._fd is not None:
                os.close(self._fd)  # the file may be another one then
            self._fd = None
            self._gap = f"\n[lines are missing here: {error.strerror}]\n".encode()


def writer(path: Path) -> TextIO:
    """Returns a stream that appends whole lines with their time; a full disk loses lines alone."""
    return cast(TextIO, _Writer(path))


class Line(NamedTuple):
    """A line of the log.

    Attributes:
      time: when it was written, as `utc` returns it; "" for a line that has no time.
      task: the task that has written it; "" for the launcher's own.
      host: the task's host.
      text: its text, without the line end.
    """

    time: str
    task: str
    host: str
    text: str


class Follower:
    """Reads a log from its beginning, and what is new at each call.

    Each call opens the log again: only then, a network file system is sure to show new lines.

    Args:
      path: the path of the log, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self, *, final: bool) -> Iterator[Line]:
        """Yields the lines that were written since the last call.

        Args:
          final: whether to yield a last line that has no line end yet.
        """
        try:
            file = self._path.open("rb")
        except OSError:  # not there yet
            return
        with file:
            file.seek(self._offset)
            while data := file.readline(_LONGEST_LINE):
                if not final and not data.endswith(b"\n") and len(data) < _LONGEST_LINE:
                    return
                self._offset += len(data)
                found = _LINE.fullmatch(data.decode(errors="replace").rstrip("\r\n"))
                if found is not None:  # it fits every text
                    yield Line(*(part or "" for part in found.groups()))
