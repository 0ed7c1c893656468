"""Reads this machine's process list."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path


def environment_of(pid: int) -> list[str]:
    """Returns the initial environment of a process as `NAME=value` strings; empty if it ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def command_of(pid: int) -> str:
    """Returns the command line of a process.

    Raises:
      OSError: the process has ended.
    """
    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    return words.decode(errors="replace").strip()


def stop_process(pid: int) -> None:
    """Sends SIGSTOP and waits until every thread has stopped, which each does by itself."""
    os.kill(pid, signal.SIGSTOP)
    while not all(state in "TZX" for state in _states_of_threads(pid)):
        time.sleep(0.001)


def wait_until_asleep(pid: int) -> None:
    """Waits until every thread of a process sleeps, as when it waits for an answer."""
    while not all(state in "SZX" for state in _states_of_threads(pid)):
        time.sleep(0.001)


def _states_of_threads(pid: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # The thread has ended meanwhile.
            found.append(path.read_text().rpartition(")")[2].split()[0])
    return found


def all_commands() -> dict[int, str]:
    """Returns every process of this machine: pid -> command line."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # The process has ended meanwhile.
            found[pid] = command_of(pid)
    return found


def of_dead_processes(folder: Path, pattern: str) -> list[tuple[str, str]]:
    """Finds what processes have left in a folder that were killed before they could remove it.

    Args:
      folder: the folder; nothing is found if it does not exist.
      pattern: regular expression of such a name; its group 1 is two letters and the process's id in
        hexadecimal digits.

    Returns:
      (name, group 1) of each.
    """
    names = os.listdir(folder) if folder.is_dir() else []
    found = [(name, match[1]) for name in names if (match := re.fullmatch(pattern, name))]
    return [one for one in found if not os.path.exists(f"/proc/{int(one[1][2:], 16)}")]
