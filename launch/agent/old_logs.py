"""Removes the logs of old runs from a host."""

import os
import re
import shutil
import time

from launch.agent import processes

KEPT = 100  # the number of runs whose logs a host keeps
_RECENT_SECS = 86400.0
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_AT_ONCE = 100  # how many are removed at a setup, so that it does not take long


def forget(parent: str) -> None:
    """Removes the folders of runs in `parent` beyond the `KEPT` ones that wrote last.

    The folder of a run stays if a process of it is on this host, or if it has written in the last
    day: hosts that share a home directory do not see each other's processes. Errors are ignored,
    since another agent may remove the same folders.

    Args:
      parent: the path of a folder with a folder for each run; `~` is the user's home.
    """
    now = time.time()
    old = [
        (run_id, path)
        for written, run_id, path in sorted(_folders(os.path.expanduser(parent)))[:-KEPT]
        if written < now - _RECENT_SECS
    ]
    alive = processes.runs() if old else set()
    for run_id, path in old[:_AT_ONCE]:
        if run_id not in alive:
            shutil.rmtree(path, ignore_errors=True)


def _folders(parent: str) -> "list[tuple[float, str, str]]":
    """Returns (time of the last write, run's id, path) of the folder of each run."""
    try:
        with os.scandir(parent) as entries:
            found = [
                (entry.name, entry.path)
                for entry in entries
                if _RUN_ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:  # no run has written here yet
        return []
    return [(_last_write(path), run_id, path) for run_id, path in found]


def _last_write(folder: str) -> float:
    try:
        with os.scandir(folder) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
        return max([os.stat(folder).st_mtime, *times])
    except OSError:  # another agent removes it at this moment
        return time.time()
