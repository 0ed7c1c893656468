"""A lock file that one process at a time can hold, also on NFS. Standard library only.

`link` creates the file, because it either succeeds or fails in one operation on every file system,
NFS included, unlike advisory locks, which some servers grant to everyone. The owner renews the
file's modification time. The lock of a process that has ended is taken over: at once if it ran on
this machine, and otherwise after the file has not been renewed for STALE_SECS. Only the file
system's own times are compared, so the machines' clocks may differ.
"""

import contextlib
import datetime
import errno
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

T = TypeVar("T")

STALE_SECS = 30.0
_RENEW_SECS = 3.0
_POLL_SECS = 0.2
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)  # For example on FAT.
_STALE_ATTEMPTS = 5
# The fields of a lock file, and their types.
_FIELDS: dict[str, tuple[type, ...]] = {
    "token": (str,),
    "host": (str,),
    "pid": (int,),
    "started": (str,),
    "machine": (str, type(None)),
    "start_ticks": (int, type(None)),
}
_ENDING_SECS = 3.0  # Time for an owner on this machine to end, if it is about to.


class LockHeld(Exception):
    """Another process holds the lock; the message says which one."""


class LockFile:
    """A lock on `path`, as a context manager.

    Args:
      path: path of the lock file; its folder exists and is writable.
      say: function that prints a line, when the lock has to be waited for.
      check: function called repeatedly meanwhile; an exception that it raises ends the wait.

    Raises:
      LockHeld: in `__enter__`, if a process that runs holds the lock.
      OSError: in `__enter__`, if the file cannot be created.
    """

    def __init__(
        self,
        path: Path,
        say: Callable[[str], None] = lambda line: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self._say, self._check = path, say, check
        self._token = uuid.uuid4().hex
        self._released = threading.Event()

    def __enter__(self) -> "LockFile":
        while not self._create():
            owner = _read(self._path)
            if owner is not None:
                self._wait_for_end_of(owner)
                self._remove_lock_of(owner)
        threading.Thread(target=self._renew, daemon=True, name="lock").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        if self.is_ours():
            with contextlib.suppress(OSError):
                self._path.unlink()

    def is_ours(self) -> bool:
        """Returns whether this process still holds the lock.

        Another process may have taken it over if this one was stopped for longer than STALE_SECS.
        """
        owner = _read(self._path)
        return owner is not None and owner["token"] == self._token

    def _create(self) -> bool:
        """Creates the lock file; returns whether this process did."""
        own = self._path.with_name(f"{self._path.name}.{self._token}")
        content = json.dumps({"token": self._token, **_describe_this_process()})
        try:
            own.write_text(content)
            return self._link(own, content)
        finally:
            own.unlink(missing_ok=True)

    def _link(self, own: Path, content: str) -> bool:
        """Gives the file `own`, which has this content, the lock's name; returns whether it has."""
        try:
            os.link(own, self._path)
        except FileExistsError:
            # NFS may repeat a request whose answer was lost; then the file has two names.
            return own.stat().st_nlink == 2
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _create_exclusively(self._path, content)
        return True

    def _wait_for_end_of(self, owner: dict[str, Any]) -> None:
        """Returns when the owner has ended, or has not renewed the lock for STALE_SECS.

        Raises:
          LockHeld: the owner runs.
        """
        here, began, said = _is_on_this_machine(owner), time.monotonic(), False
        renewed = _modified(self._path)
        while True:
            self._check()
            if here and not _runs(owner):
                return
            waited = time.monotonic() - began
            now = _modified(self._path)
            if now is None:
                return
            if (waited > _ENDING_SECS) if here else (now != renewed):
                owner = _read(self._path) or owner  # Another process may have taken it meanwhile.
                raise LockHeld(
                    f"process {owner['pid']} on {owner['host']}, which started {owner['started']}"
                )
            if waited > STALE_SECS:
                return
            if not here and not said:
                self._say(
                    f"waiting {STALE_SECS:g} s at most to see whether process {owner['pid']} on "
                    f"{owner['host']} still uses {self._path.parent}"
                )
                said = True
            time.sleep(_POLL_SECS)

    def _remove_lock_of(self, owner: dict[str, Any]) -> None:
        """Removes the lock of an owner that has ended, but no other one."""
        found = _read(self._path)
        if found is None or found["token"] != owner["token"]:
            return
        taken = self._path.with_name(f"{self._path.name}.{self._token}")
        try:
            self._path.rename(taken)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        else:
            moved = _read(taken)
            if moved is not None and moved["token"] != owner["token"]:
                # Another process took the lock over just before the rename.
                with contextlib.suppress(FileExistsError):
                    os.link(taken, self._path)
            taken.unlink()

    def _renew(self) -> None:
        while not self._released.wait(_RENEW_SECS):
            with contextlib.suppress(OSError):  # A server that is away comes back.
                if self.is_ours():
                    os.utime(self._path)


def _create_exclusively(path: Path, content: str) -> bool:
    try:
        file = path.open("x")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
    except OSError:
        path.unlink()
        raise
    return True


def _describe_this_process() -> dict[str, Any]:
    now = datetime.datetime.now().astimezone()
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": now.isoformat(" ", "seconds"),
        "machine": _machine(),
        "start_ticks": _start_ticks(os.getpid()),
    }


def _machine() -> Optional[str]:
    """Returns what is unique to this boot and this process namespace; None if it is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _is_on_this_machine(owner: dict[str, Any]) -> bool:
    return owner["machine"] is not None and owner["machine"] == _machine()


def _runs(owner: dict[str, Any]) -> bool:
    """Returns whether an owner on this machine runs; another process may have its number."""
    return bool(_start_ticks(owner["pid"]) == owner["start_ticks"])


def _start_ticks(pid: int) -> Optional[int]:
    """Returns the start of a process in clock ticks since boot; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _unless_gone(read: Callable[[], T]) -> Optional[T]:
    """Returns what `read` returns; None if the file does not exist.

    NFS calls a file stale if another machine removed or replaced it while this one opened it. The
    next attempt finds the new file, or none.
    """
    for _ in range(_STALE_ATTEMPTS):
        try:
            return read()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
    return None


def _modified(path: Path) -> Optional[int]:
    """Returns the modification time in ns, as the file server has it; None without the file."""

    # NFS asks the server again when a file is opened; a plain stat may answer from its cache.
    def modified() -> int:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns

    return _unless_gone(modified)


def _read(path: Path) -> Optional[dict[str, Any]]:
    """Returns the content of a lock file; None if there is none."""
    content = _unless_gone(path.read_bytes)
    if content is None:
        return None
    try:
        found = json.loads(content)
        if all(isinstance(found[name], types) for name, types in _FIELDS.items()):
            return {name: found[name] for name in _FIELDS}
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    # Nobody's: `link` makes complete files only.
    nobody = {"token": None, "host": "an unknown host", "pid": 0, "started": "at some time"}
    return {**nobody, "machine": None, "start_ticks": None}
