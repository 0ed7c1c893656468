"""Reads a task's log: old lines with their times, and new ones as they come."""

import bisect
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

    Args:
      path: the path of the log, which need not exist yet.
      since: leaves out lines before this time, in seconds since 1970.

    Attributes:
      is_untimed: whether a part of the log had no times, so that `since` kept all of it.
    """

    def __init__(self, path: Path, since: float = 0.0) -> None:
        self._path, self._since = path, since
        self._file: Optional[IO[bytes]] = None
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
        if self._file is None:
            self._open(self._path.with_name(f"{self._path.name}.1"))
        if self._file is None:
            self._open(self._path)
        while self._file is not None:
            # What is written before the log gets its new name is read after that was seen.
            is_old = self._is_old()
            yield from self._rest(final=final or is_old)
            if not is_old:
                return
            self._file.close()
            self._file = None
            self._open(self._path)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def _open(self, path: Path) -> None:
        try:
            self._file = path.open("rb")
        except (OSError, ValueError):  # nothing was written yet, or the name is damaged
            return
        # `.log.1` has its times in `.times.1`.
        self._times = Times(path.with_name(path.name.replace(".log", ".times")))
        if self._since and self._times.known:
            self._skip(self._file)
        elif self._since and os.fstat(self._file.fileno()).st_mtime < self._since:
            self._file.seek(0, os.SEEK_END)
        elif self._since:
            self.is_untimed = True

    def _skip(self, file: IO[bytes]) -> None:
        """Goes to the first line that may be as late as `since`."""
        offset = self._times.first_offset(self._since)
        if offset is None:
            file.seek(0, os.SEEK_END)
        elif offset:
            file.seek(offset - 1)
            file.readline()  # the line end before, or the rest of a line that began earlier

    def _is_old(self) -> bool:
        """Returns whether the open file has been renamed, so that another one follows it."""
        if self._file is None:
            return False
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError:  # the new one is about to be made
            return False

    def _rest(self, *, final: bool) -> Iterator[Line]:
        file = self._file
        while file is not None:
            offset = file.tell()
            data = file.readline(_LONGEST_LINE)
            if not data:
                return
            if not final and not data.endswith(b"\n") and len(data) < _LONGEST_LINE:
                file.seek(offset)
                return
            yield Line(self._times.at(offset), data)
