"""Reads a task's log: old lines with their times, and new ones as they come."""

import bisect
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, Optional

_LONGEST_LINE = 1 << 16  # bytes; a longer line is given in parts
_RESOLUTION_SECS = 0.2  # of the times that `launch.agent.logs` writes


class Line(NamedTuple):
    """A line of a log.

    Attributes:
      time: when it was written, in seconds since 1970, to a fifth of a second; 0 if unknown.
      data: its bytes, with the line end, which parts of a long line and the last one may lack.
    """

    time: float
    data: bytes


class Times:
    """When the lines of one log file came.

    Args:
      path: the file that `launch.agent.logs` writes beside the log.

    Attributes:
      known: whether any time is known.
    """

    def __init__(self, path: Path) -> None:
        self._offsets: list[int] = []
        self._times: list[float] = []
        try:
            text = path.read_bytes()
        except OSError:  # a log of an earlier version, or of a full disk
            text = b""
        for line in text.splitlines():
            self._take(line.split())
        self.known = bool(self._times)

    def _take(self, words: list[bytes]) -> None:
        # A full disk leaves halves of lines; a clock may be set back, but lines have an order.
        if len(words) != 2 or not words[1].isdigit() or len(words[1]) > 18:
            return
        try:
            moment = float(words[0])
        except ValueError:
            return
        if 0 < moment < 1e12 and int(words[1]) >= (self._offsets or [0])[-1]:
            self._offsets.append(int(words[1]))
            self._times.append(max(moment, (self._times or [0.0])[-1]))

    def at(self, offset: int) -> float:
        """Returns when the byte at an offset was written; 0 if that is not known."""
        index = bisect.bisect_right(self._offsets, offset)
        return self._times[index - 1] if index else 0.0

    def first_offset(self, since: float) -> Optional[int]:
        """Returns the first offset with bytes that may be as late as `since`; None if none is."""
        index = bisect.bisect_left(self._times, since - _RESOLUTION_SECS)
        return self._offsets[index] if index < len(self._offsets) else None


class TaskLog:
    """Reads one log from its beginning, with its earlier part `.1`, across rotations.

    Each call opens the log again: only then, a network file system is sure to show new lines.

    Args:
      path: the path of the log, which need not exist yet.
      since: leaves out lines before this time, in seconds since 1970.

    Attributes:
      is_untimed: whether a part of the log had no times, so that `since` kept all of it.
    """

    def __init__(self, path: Path, since: float = 0.0) -> None:
        self._path, self._since = path, since
        self._inode: Optional[int] = None  # of the part that was read last, up to this offset
        self._offset = 0
        self._times = Times(Path(os.devnull))
        self.is_untimed = False

    def exists(self) -> bool:
        """Returns whether the task has written a log."""
        return self._path.exists()

    def lines(self, *, final: bool) -> Iterator[Line]:
        """Yields the lines that were written since the last call.

        Args:
          final: whether to yield a last line that has no line end yet.
        """
        with contextlib.ExitStack() as stack:
            parts: dict[int, tuple[Path, IO[bytes]]] = {}  # by inode; the newest first
            for path in (self._path, self._path.with_name(f"{self._path.name}.1")):
                with contextlib.suppress(OSError, ValueError):  # not there yet, or a damaged name
                    part = stack.enter_context(path.open("rb"))
                    parts.setdefault(os.fstat(part.fileno()).st_ino, (path, part))
                if self._inode in parts:
                    break
            for inode, (path, file) in reversed(parts.items()):
                if inode != self._inode:
                    self._inode, self._offset = inode, self._start(path, file)
                # What stands before the log gets its new name is written before that.
                yield from self._rest(file, final=final or inode != next(iter(parts)))

    def _start(self, path: Path, file: IO[bytes]) -> int:
        """Returns the offset of the first line of a part that may be as late as `since`."""
        stem, _, part = path.name.partition(".log")
        self._times = Times(path.with_name(f"{stem}.times{part}"))  # of `.log.1`: `.times.1`
        if not self._since:
            return 0
        state = os.fstat(file.fileno())
        offset = self._times.first_offset(self._since)
        if not self._times.known and state.st_mtime >= self._since:
            self.is_untimed = True
            return 0
        if offset is None:
            return state.st_size
        if offset:
            file.seek(offset - 1)
            file.readline()  # the line end before, or the rest of a line that began earlier
        return file.tell()

    def _rest(self, file: IO[bytes], *, final: bool) -> Iterator[Line]:
        file.seek(self._offset)
        while data := file.readline(_LONGEST_LINE):
            if not final and not data.endswith(b"\n") and len(data) < _LONGEST_LINE:
                return
            offset = self._offset
            self._offset += len(data)
            yield Line(self._times.at(offset), data)
