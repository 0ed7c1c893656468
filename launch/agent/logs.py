"""The log of a task: secrets masked, limited in size, written by a thread; old logs go."""

import contextlib
import math
import os
import queue
import re
import shutil
import threading
import time
from collections.abc import Iterable
from typing import Optional

from launch.agent import processes

_SHORTEST = 6  # characters; shorter parts would mask much that is no secret
_MASK = "***"


class Mask:
    """Replaces values by `***`.

    Output comes line by line, so each line of a value, such as a key, is masked by itself: those of
    at least six characters, without the space around them.

    Args:
      values: the values to mask.

    Attributes:
      longest: the bytes of the longest part that is masked; 0 if there is none.
    """

    def __init__(self, values: Iterable[str]) -> None:
        lines = {line.strip() for value in values for line in value.split("\n")}
        # Longer ones first: a shorter one may be a part of a longer one.
        self._parts = sorted((line for line in lines if len(line) >= _SHORTEST), key=len)[::-1]
        self._encoded = [os.fsencode(part) for part in self._parts]
        self.longest = max(map(len, self._encoded), default=0)

    def text(self, text: str) -> str:
        """Returns text with the values masked."""
        for part in self._parts:
            text = text.replace(part, _MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """Returns bytes of an output with the values masked."""
        for part in self._encoded:
            data = data.replace(part, _MASK.encode())
        return data


_LIMIT = 64 << 20  # bytes; a larger file is renamed to NAME.1
_AGAIN_SECS = 60.0  # after an error, until the log is tried again


class LogFile:
    """Appends to a log file that only its owner can read.

    Args:
      path: the path of the file; `~` is the user's home. Missing folders are created.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)
        self._fd: Optional[int] = None
        self._error: Optional[str] = None
        self._gap = b""  # what is said of lines that an error has kept from the log
        self._try_again = math.inf
        try:
            self._open()
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Writes all of `data`; after an error, ignores data for a minute, then tries again."""
        try:
            if time.monotonic() >= self._try_again:
                self._open()
                data = self._gap + data
            while data and self._fd is not None:
                data = data[os.write(self._fd, data) :]
                self._gap = b"" if not data else self._gap
                if os.fstat(self._fd).st_size > _LIMIT:
                    os.replace(self._path, f"{self._path}.1")
                    self.close()
                    self._open()
        except OSError as error:
            self._give_up(error)

    def new_error(self) -> Optional[str]:
        """Returns the error that stopped the log, once; None if there is no new error."""
        error, self._error = self._error, None
        return error

    def close(self) -> None:
        """Closes the file."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self._try_again = math.inf

    def _open(self) -> None:
        if not os.path.exists(os.path.dirname(self._path)):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._fd, self._try_again = _append_to(self._path), math.inf

    def _give_up(self, error: OSError) -> None:
        self.close()
        self._try_again = time.monotonic() + _AGAIN_SECS
        if not self._gap:  # else the last attempt has failed, too
            self._error = (
                f"{self._path}: {error.strerror}; lines are left out until that is repaired"
            )
            self._gap = f"\n[lines are missing here: {error.strerror}]\n".encode()


def _append_to(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


_BEHIND = 4 << 20  # bytes
_threads: dict[str, threading.Thread] = {}  # path -> the thread that has begun to write it last


class LogWriter:
    """A log file whose writes never wait; what is still to be written waits in memory.

    Args:
      path: the path of the file, as for `LogFile`.

    Raises:
      OSError: this process cannot start a thread.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._to_write: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        self._errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        # The first is counted by the caller's thread, and the second by the thread that writes.
        self._queued, self._written = 0, 0
        earlier = _threads.get(path)  # of a task that was started again, perhaps still at work
        self._thread = threading.Thread(target=self._work, args=(earlier,), daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(f"{path} cannot be written: {error}") from None
        _threads[path] = self._thread

    def write(self, data: bytes) -> None:
        """Queues `data`."""
        self._queued += len(data)
        self._to_write.put(data)

    @property
    def is_behind(self) -> bool:
        """Whether so much waits in memory that the caller should not write more for now."""
        return self._queued - self._written > _BEHIND

    def new_errors(self) -> list[str]:
        """Returns the errors since the last call that keep lines from the log."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._errors.get_nowait())
        return found

    def close(self) -> None:
        """Closes the log once all is written, without waiting for that."""
        self._to_write.put(None)

    def wait(self, secs: float) -> bool:
        """Waits at most `secs` until a closed log is written; returns whether it is."""
        self._thread.join(secs)
        return not self._thread.is_alive()

    def _work(self, earlier: Optional[threading.Thread]) -> None:
        if earlier is not None:
            earlier.join()
        log = LogFile(self._path)
        self._note_an_error_of(log)
        while (data := self._to_write.get()) is not None:
            log.write(data)
            self._written += len(data)
            self._note_an_error_of(log)
        log.close()

    def _note_an_error_of(self, log: LogFile) -> None:
        error = log.new_error()
        if error is not None:
            self._errors.put(error)


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
