"""A lock file that one process at a time can hold. Standard library only.

The lock is the kernel's (`flock`), which holds on local disks and on NFS 4, and ends with its
process. A server of NFS keeps it for a while when the process's host has gone.
"""

import contextlib
import datetime
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

_POLL_SECS = 0.2
_ENDING_SECS = 3.0  # Time for an owner on this machine to end, if it is about to.
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
      say: function that prints a line, when a process on another machine has to be waited for.
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
        owner, machine = _owner(path)
        # One that has just taken the lock may not have written its name yet.
        is_here = not owner or machine == _machine()
        if time.monotonic() - began > (_ENDING_SECS if is_here else _LEASE_SECS):
            raise LockHeld(owner or "an unknown process")
        if not is_here and not said:
            say(f"waiting {_LEASE_SECS:g} s at most for {owner}, which uses {path.parent}")
            said = True
        time.sleep(_POLL_SECS)
    try:
        os.ftruncate(file, 0)
        os.write(file, f"{this_process()}\n{_machine()}\n".encode())
        yield lambda: _is_at(file, path)
    finally:
        with contextlib.suppress(OSError):  # It must not hide why the work ended.
            if _is_at(file, path):
                path.unlink()
        os.close(file)


def _try_to_lock(path: Path) -> Optional[int]:
    """Returns the descriptor of the locked file; None if another process holds or removes it."""
    with contextlib.ExitStack() as stack, contextlib.suppress(BlockingIOError), _not_stale():
        # NFS locks only what can be written.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        stack.callback(os.close, file)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(file, path):  # The owner before may have removed it meanwhile.
            stack.pop_all()
            return file
    return None


@contextlib.contextmanager
def _not_stale() -> Iterator[None]:
    """Passes over ESTALE: another host of NFS has removed the file, which this one has open."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise


def _is_at(file: int, path: Path) -> bool:
    """Returns whether `path` still names an open file."""
    with contextlib.suppress(FileNotFoundError), _not_stale():
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False))
    return False


def _owner(path: Path) -> tuple[str, str]:
    """Returns what the lock's owner says of itself, and its machine; empty if it has not yet."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        said, _, machine = file.read(300).decode("utf-8", "replace").partition("\n")
        return " ".join(said.split()), machine.strip()
    return "", ""


def _machine() -> str:
    """Returns what all containers of this machine have in common, until it starts again."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return socket.gethostname()
