"""What a job writes to its output file: read as it comes, shown, and its last lines kept."""

import collections
import re
from collections.abc import Container
from pathlib import Path
from typing import BinaryIO, Optional

from launch.record.run_folder import RunFolder
from launch.screen.display import Display

_LAST_LINES = 12
_TASK_LINE = re.compile(r"\[(\w+/\d+) (\S+)\] (.*)")


class JobOutput:
    """Shows a job's lines, and keeps the last ones.

    Args:
      path: what the batch script writes to.
      tasks: the names of the job's tasks, whose lines are marked with them.
      display: what the user sees.

    Attributes:
      last_lines: of all.
    """

    def __init__(self, path: Path, tasks: Container[str], display: Display) -> None:
        self.last_lines = collections.deque[str](maxlen=_LAST_LINES)
        self._tail = Tail(path)
        self._tasks = tasks
        self._display = display

    def show_new(self) -> bool:
        """Shows what the job has written since; returns whether there was anything."""
        lines = self._tail.read()
        self.last_lines.extend(lines)
        for line in lines:
            found = _TASK_LINE.fullmatch(line)
            if found and found[1] in self._tasks:
                self._display.task_line(found[1], found[2], found[3])
            else:
                self._display.note(line)
        return bool(lines)

    def close(self) -> None:
        """Closes the file."""
        self._tail.close()


class Tail:
    """The lines that come to a file, which need not be there yet.

    Args:
      path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Optional[BinaryIO] = None
        self._partial = b""

    def read(self) -> list[str]:
        """The lines since the last call."""
        if self._file is None:
            if not self._path.exists():
                return []
            self._file = self._path.open("rb")
        *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def output_path(folder: RunFolder) -> Path:
    """What the batch script writes to: everything that the user sees."""
    return folder.path.absolute() / "slurm.out"
