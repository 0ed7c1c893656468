"""Keeps a second run out of an output folder, and a second process away from a worker's name.

The lock is the kernel's (`flock`), which holds on local disks and on NFS 4, and ends with its
process. Object stores have no locks; there, the newest name in the file counts, which is weaker:
a run whose name was replaced ends at its next save.
"""

import contextlib
import datetime
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError, UserError
from cifar10.host.files import real, write_text
from cifar10.host.process import log

TRAINING, EVALUATOR = "training", "evaluator"
_POLL_SECS = 0.2
_ENDING_SECS = 3.0  # Time for an owner to end, if it is about to.
_LOST_SECS = 100.0  # Time for a server of NFS to free the lock of a host that is gone.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# Another process has the lock, or removes its file; on NFS, another host has removed it.
_LATER = (errno.EWOULDBLOCK, errno.ENOENT, errno.ESTALE)


@contextlib.contextmanager
def hold_worker(output_dir: str, worker: str, check: Callable[[], None]) -> Iterator[None]:
    """Keeps a second process of one worker away, if both see the chief's output folder.

    A platform may start a worker anew while the earlier process still trains. But a parameter
    server deletes the sessions of a task whose name another process uses, in the middle of a step:
    one of the two would fail, or wait for ever.

    Args:
      output_dir: path of the output folder; on a machine without it, nothing is held.
      worker: the task, such as `worker/0`.
      check: see `hold`.

    Raises:
      UserError: the other process does not end in time.
    """
    role, is_here = worker.replace("/", "-"), os.access(output_dir, os.W_OK)
    with hold(output_dir, output_dir, role, check) if is_here else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def hold(
    output_dir: str, log_dir: str, role: str, check: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Holds both folders for this process.

    The log folder has event files, which hold the rows of one run.

    Args:
      output_dir: path of the output folder, which exists.
      log_dir: path of the log folder, which exists; it may be the same folder.
      role: TRAINING, EVALUATOR or a worker; a folder may have one process of each.
      check: function called repeatedly while a lock is waited for; an exception that it raises ends
        the wait.

    Yields:
      A function that raises TrainingError if another process has taken a folder over.

    Raises:
      UserError: another process of this role uses one of the folders.
    """
    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    own = f"process {os.getpid()} on {socket.gethostname()}, which started {now}"
    flags = {output_dir: "--output-dir"}
    if real(log_dir) != real(output_dir):
        flags[log_dir] = "--log-dir"

    def check_owner() -> None:
        for folder in flags:
            if _name_in(_path(folder, role)) != own:
                other = f"another process has taken {folder} over"
                raise TrainingError(f"{other}, or .{role}.lock was removed")

    with contextlib.ExitStack() as stack:
        for folder, flag in flags.items():
            stack.enter_context(_held(folder, flag, role, own, check))
        yield check_owner


def is_held(folder: str, role: str) -> bool:
    """Returns whether a process of a role holds a folder.

    Where there are no locks, a process that has its name there may hold it.

    Raises:
      PermissionError: this user may not look into the lock file.
    """
    path = _path(folder, role)
    if "://" not in folder:
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return False
            if error.errno == errno.EWOULDBLOCK:
                return True
            if error.errno not in _NO_LOCKS:
                raise
    return _name_in(path) != ""


@contextlib.contextmanager
def _held(folder: str, flag: str, role: str, own: str, check: Callable[[], None]) -> Iterator[None]:
    """Holds a folder that the user chose by `flag`, with this process's name in its lock file."""
    path = _path(folder, role)
    file = None if "://" in folder else _wait_for(folder, flag, role, check)
    if file is not None:
        os.ftruncate(file, 0)
        os.write(file, own.encode())
    else:
        before = _name_in(path)
        if before:
            log(f"note: {folder} was used by {before}; if that still runs, its next save ends it")
        write_text(path, own)
    try:
        yield
    finally:
        with contextlib.suppress(tf.errors.OpError):  # It must not hide why the work ended.
            if _name_in(path) == own:
                tf.io.gfile.remove(path)
        if file is not None:
            os.close(file)


def _wait_for(folder: str, flag: str, role: str, check: Callable[[], None]) -> Optional[int]:
    """Returns the locked file of a folder; None if its file system has no locks."""
    path, began = _path(folder, role), time.monotonic()
    try:
        while (file := _try_to_lock(path)) is None:
            check()
            owner = _name_in(path) or "an unknown process"
            # Another process with this one's number is in another container.
            is_here = f" on {socket.gethostname()}, " in owner or " on " not in owner
            is_here &= f"process {os.getpid()} " not in owner
            if time.monotonic() - began > (_ENDING_SECS if is_here else _LOST_SECS):
                way_out = f"wait until it has ended, or name another {flag}"
                raise UserError(f"{folder} is used by another {role}: {owner}; {way_out}")
            time.sleep(_POLL_SECS)
        return file
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path} is a link, which is not followed; remove it") from error
        if error.errno not in _NO_LOCKS:
            raise
        return None


def _try_to_lock(path: str) -> Optional[int]:
    """Returns the descriptor of the locked file; None if that has to be tried again."""
    with contextlib.ExitStack() as stack:
        try:
            # NFS locks only what can be written.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The owner before may have removed it meanwhile.
            if os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False)):
                stack.pop_all()
                return file
        except OSError as error:
            if error.errno not in _LATER:
                raise
    return None


def _path(folder: str, role: str) -> str:
    return str(tf.io.gfile.join(folder, f".{role}.lock"))


def _name_in(path: str) -> str:
    """Returns the name in a lock file; empty if it has none yet."""
    with contextlib.suppress(tf.errors.NotFoundError), tf.io.gfile.GFile(path, "rb") as file:
        return " ".join(file.read(300).decode("utf-8", "replace").partition("\n")[0].split())
    return ""
