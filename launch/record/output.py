"""output.log of a run: the lines of all its tasks and of its launcher; who writes it, who reads it.

At 64 MiB it becomes output.log.1, in the place of an earlier one, and a new one begins.

2026-01-31T12:00:00.123Z [worker/0 node1] step 10/282  loss 2.1  512 images/s
2026-01-31T12:00:01.456Z worker/0 on node1: exit code 1; restart 1 of 3 in 1 s
"""

import contextlib
import datetime
import io
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Optional, TextIO, cast

_LONGEST_LOG = 64 << 20  # bytes
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

    After an error, such as a full disk, `lost` gets the lines until one can be written again.
    """

    def __init__(self, path: Path, lost: Callable[[str], object]) -> None:
        self._path, self._lost = path, lost
        self._size = 0
        self._fd: Optional[int] = None
        self._gap = b""  # what is said of lines that an error has kept from the log

    def write(self, text: str) -> int:
        now = utc(time.time())
        lines = "".join(f"{now} {line}\n" for line in text.removesuffix("\n").split("\n"))
        if not self._append(lines.encode(errors="replace")):
            self._lost(lines)
        return len(text)

    def _append(self, data: bytes) -> bool:
        try:
            if self._fd is not None and self._size > _LONGEST_LOG:
                self._close()
                os.replace(self._path, _before(self._path))
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                self._size = os.fstat(self._fd).st_size
            data = self._gap + data
            self._size += len(data)
            while data:
                data = data[os.write(self._fd, data) :]
            self._gap = b""
        except OSError as error:
            if not self._gap:
                self._lost(f"{utc(time.time())} {self._path}: {error.strerror}; it lacks lines\n")
            self._close()  # the file may be another one then
            self._gap = f"\n[lines are missing here: {error.strerror}]\n".encode()
        return not self._gap

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def writer(path: Path, lost: Callable[[str], object] = lambda lines: None) -> TextIO:
    """Returns a stream that appends whole lines with their time.

    Args:
      path: the path of the log.
      lost: a function that gets the lines, with their time, that a full disk does not take.
    """
    return cast(TextIO, _Writer(path, lost))


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


def parse(text: str) -> Line:
    """Returns the line of a log that this text is."""
    found = _LINE.fullmatch(text.rstrip("\r\n"))
    return Line(*(part or "" for part in (found.groups() if found else ("", "", "", text))))


class LogReader:
    """Reads a log from its beginning, and what is new at each call.

    Each call opens the log again: only then, a network file system is sure to show new lines.

    Args:
      path: the path of the log, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode: Optional[int] = None  # of the log that `_offset` is in

    def lines(self, *, final: bool) -> Iterator[Line]:
        """Yields the lines that were written since the last call.

        Args:
          final: whether to yield a last line that has no line end yet.
        """
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != self._inode:
                with contextlib.suppress(FileNotFoundError), _before(self._path).open("rb") as old:
                    if self._inode in (None, os.fstat(old.fileno()).st_ino):
                        yield from self._read(old, final=True)
                self._inode, self._offset = inode, 0
            yield from self._read(file, final=final)

    def _read(self, file: BinaryIO, *, final: bool) -> Iterator[Line]:
        file.seek(self._offset)
        while data := file.readline(_LONGEST_LINE):
            if not final and not data.endswith(b"\n") and len(data) < _LONGEST_LINE:
                return
            self._offset += len(data)
            yield parse(data.decode(errors="replace"))
