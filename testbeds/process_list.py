"""What this machine's process list says."""

import contextlib
import os
from pathlib import Path


def environment_of(pid: int) -> list[str]:
    """What a process was started with, each as `NAME=value`; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def command_of(pid: int) -> str:
    """A process's command line; OSError if it has ended."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    return words.decode(errors="replace").strip()


def all_commands() -> dict[int, str]:
    """Every process of this machine: pid -> command line."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            found[pid] = command_of(pid)
    return found
