"""Reads this machine's process list."""

import contextlib
import os
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
