"""A lock file that one process at a time can hold. Standard library only.

The lock is the kernel's (`flock`), which holds on local disks and on NFS 4, and ends with its
process. A server of NFS keeps it for a while when the process's host has gone.
"""

import contextlib
import datetime
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

_POLL_SECS = 0.2
_ENDING_SECS = 3.0  # Time for an owner on this host to end, if it is about to.
_LEASE_SECS = 100.0  # Servers of NFS keep the locks of a host that has gone for 90 s.


class LockHeld(Exception):
    """Another process holds the lock; the message says which one."""


def this_process() -> str:
    """Returns `process 7 on node0, which started 2026-01-31 09:00:00+00:00`, of this process."""
    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    return f"process {os.getpid()} on {socket.gethostname()}, which started {now}"


@contextlib.contextmanager
def hold(
    path: Path, say: Callable[[str], None], check: Callable[[], None]
) -> Iterator[Callable[[], bool]]:
    """Holds the lock, and removes its file at the end.

    Args:
      path: path of the lock file; its folder exists.
      say: function that prints a line, when a process on another host has to be waited for.
      check: function called repeatedly meanwhile; an exception that it raises ends the wait.

    Yields:
      A function that returns whether the file is still there, which keeps other processes out.

    Raises:
      LockHeld: a process holds the lock.
      OSError: the file cannot be opened, or its file system has no locks.
    """
    began, said = time.monotonic(), False
    while (file := _try_to_lock(path)) is None:
        check()
        owner = _owner(path)
        # One that has just taken the lock may not have written its name yet.
        is_here = not owner or f" on {socket.gethostname()}, " in owner
        if time.monotonic() - began > (_ENDING_SECS if is_here else _LEASE_SECS):
            raise LockHeld(owner or "an unknown process")
        if not is_here and not said:
            say(f"waiting {_LEASE_SECS:g} s at most for {owner}, which uses {path.parent}")
            said = True
        time.sleep(_POLL_SECS)
    try:
        os.ftruncate(file, 0)
        os.write(file, f"{this_process()}\n".encode())
        yield lambda: _is_at(file, path)
    finally:
        with contextlib.suppress(OSError):  # It must not hide why the work ended.
            if _is_at(file, path):
                path.unlink()
        os.close(file)


def _try_to_lock(path: Path) -> Optional[int]:
    """Returns the descriptor of the locked file; None if another process holds it."""
    # NFS locks only what can be written.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, file)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(file, path):  # The owner before may have removed it meanwhile.
                stack.pop_all()
                return file
    return None


def _is_at(file: int, path: Path) -> bool:
    """Returns whether `path` still names an open file."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _owner(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return " ".join(file.read(300).decode("utf-8", "replace").split())
    return ""
