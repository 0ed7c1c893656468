"""Reads a job's output file as it grows, shows its lines, and keeps the last ones."""

import collections
import re
from collections.abc import Container
from pathlib import Path

from launch.record.run_folder import RunFolder
from launch.screen.display import Display

_LAST_LINES = 12
_TASK_LINE = re.compile(r"\[(\w+/\d+) (\S+)\] (.*)")


class JobOutput:
    """Shows a job's output, and keeps its last lines.

    Args:
      path: the file that the batch script writes to.
      tasks: the names of the job's tasks; each line of a task begins with its name.
      display: shows the lines to the user.

    Attributes:
      last_lines: the last lines of the output file, at most 12.
    """

    def __init__(self, path: Path, tasks: Container[str], display: Display) -> None:
        self.last_lines = collections.deque[str](maxlen=_LAST_LINES)
        self._tail = Tail(path)
        self._tasks = tasks
        self._display = display

    def show_new(self) -> bool:
        """Shows the lines written since the last call; returns whether there were any."""
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
    """Reads new lines from a file that grows.

    Args:
      path: the file, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._partial = b""

    def read(self) -> list[str]:
        """Returns the lines completed since the last call."""
        if not self._path.exists():
            return []
        # A network file system may show new content only after the file is opened again.
        with self._path.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        self._position += len(new)
        *lines, self._partial = (self._partial + new).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def output_path(folder: RunFolder) -> Path:
    """Returns the path of the file that receives the output of the batch script."""
    return folder.path.absolute() / "slurm.out"
