"""Reads what a job writes to its output file as it comes, shows it, and keeps the last lines."""

import collections
import re
from collections.abc import Container
from pathlib import Path

from launch.record.run_folder import RunFolder
from launch.screen.display import Display

_LAST_LINES = 12
_TASK_LINE = re.compile(r"\[(\w+/\d+) (\S+)\] (.*)")


class JobOutput:
    """Shows a job's lines, and keeps the last ones.

    Args:
      path: the file that the batch script writes to.
      tasks: the names of the job's tasks, which mark their lines.
      display: what the user sees.

    Attributes:
      last_lines: of the whole job.
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


class Tail:
    """Lines as they come to a file, which need not be there yet.

    Args:
      path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._partial = b""

    def read(self) -> list[str]:
        """Returns the lines that have come since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:  # anew: a network file system may show news only then
            file.seek(self._position)
            new = file.read()
        self._position += len(new)
        *lines, self._partial = (self._partial + new).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def output_path(folder: RunFolder) -> Path:
    """The file that the batch script writes to: everything that the user sees."""
    return folder.path.absolute() / "slurm.out"
