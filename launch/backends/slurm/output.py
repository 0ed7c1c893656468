"""Reads a job's output file as it grows, shows its lines, and keeps the last ones."""

import collections
import contextlib
import re
from collections.abc import Container
from pathlib import Path
from typing import Optional

from launch.record.run_folder import RunFolder
from launch.screen.display import Display

_LAST_LINES = 12
_CHUNK = 1 << 20  # bytes that are read at once
_AT_ONCE = 16  # chunks between two looks at the job
_LONGEST = 1 << 16  # bytes of a line; a longer one is shown in parts
ENOUGH = "[this output has enough lines of tasks; "  # begins the note that no more will follow
_TASK_LINE = re.compile(r"\[(\w+/\d+) (\S+)\] (.*)")


class JobOutput:
    """Shows a job's output, and keeps its last lines.

    Args:
      path: the file that the batch script writes to.
      tasks: the names of the job's tasks; each line of a task begins with its name.
      display: shows the lines to the user.

    Attributes:
      last_lines: the last lines of the output file, at most 12; if there was the note that lines of
        tasks are left out, that note, which names their logs, and the lines after it.
    """

    def __init__(self, path: Path, tasks: Container[str], display: Display) -> None:
        self.last_lines = collections.deque[str](maxlen=_LAST_LINES)
        self._tail = Tail(path)
        self._tasks = tasks
        self._display = display

    def show_new(self) -> bool:
        """Shows new lines, of at most 16 MiB in all; returns whether there were any.

        What is left is for the next call.
        """
        has_shown = False
        for _ in range(_AT_ONCE):
            lines = self._tail.read()
            if lines is None:
                break
            has_shown = has_shown or bool(lines)
            for line in lines:
                self._show(line)
        return has_shown

    def _show(self, line: str) -> None:
        if line.startswith(ENOUGH):
            self.last_lines.clear()  # lines from long before the end
        self.last_lines.append(line)
        found = _TASK_LINE.fullmatch(line)
        if found and found[1] in self._tasks:
            self._display.task_line(found[1], found[2], found[3])
        else:
            self._display.note(line)


class Tail:
    """Reads new lines from a file that grows.

    Args:
      path: the file, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._partial = b""

    def read(self) -> Optional[list[str]]:
        """Returns the lines of the next chunk, perhaps none; None if there are none now."""
        new = self._next_chunk()
        if not new:
            return None
        self._position += len(new)
        *lines, self._partial = (self._partial + new).split(b"\n")
        if len(self._partial) > _LONGEST:
            lines.append(self._partial)
            self._partial = b""
        return [part.decode(errors="replace") for line in lines for part in _parts(line)]

    def _next_chunk(self) -> bytes:
        # A network file system may show new content only after the file is opened again. Its errors
        # may pass; the job goes on meanwhile.
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self._position)
            return file.read(_CHUNK)
        return b""


def _parts(line: bytes) -> list[bytes]:
    return [line[i : i + _LONGEST] for i in range(0, len(line), _LONGEST)] or [b""]


def output_path(folder: RunFolder) -> Path:
    """Returns the path of the file that receives the output of the batch script."""
    return folder.path.absolute() / "slurm.out"
