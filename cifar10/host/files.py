"""Reads and writes small files; a file is replaced by renaming.

On local file systems and NFS, a file reaches the disk before its new name does. So a machine that
loses power keeps the old file or the new one, never an empty one. No link is followed in writing.
"""

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, DamagedError
from cifar10_program.paths import real as real
from cifar10_program.paths import sync as sync

_CHUNK_BYTES = 1 << 20


def require_writable(folder: str, name: str) -> None:
    """Makes a folder, and creates and removes a file in it.

    Args:
      folder: path of the folder.
      name: what the message calls the folder.

    Raises:
      ConfigError: the folder cannot be made or written to.
    """
    try:
        tf.io.gfile.makedirs(folder)
        # Not a name of something unfinished, which a start of training removes.
        probe = tf.io.gfile.join(folder, f".{secrets.token_hex(4)}.write-probe")
        _write(probe, b"", folder)
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(probe)  # Unless another process has done so.
    except (OSError, tf.errors.OpError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        why = f"{name} {folder} cannot be written to: {reason}{whose(folder)}"
        way_out = "let this user write there, or name another folder"
        raise ConfigError(f"{why}; {way_out}") from error


def whose(path: str) -> str:
    """Returns `; PATH belongs to user 0, and this process is user 1000`; empty if nobody knows.

    Args:
      path: path of a file or folder; if it does not exist, the nearest folder that does counts, or
        the link to nothing.
    """
    whole = Path(path).absolute()
    for found in () if "://" in path else (whole, *whole.parents):
        if link := dangling_link(str(found)):
            return link
        with contextlib.suppress(OSError):
            owner = found.stat().st_uid
            return f"; {found} belongs to user {owner}, and this process is user {os.geteuid()}"
    return ""


def dangling_link(path: str) -> str:
    """Returns `; PATH is a link to TARGET, which does not exist`; empty if it is none."""
    if os.path.exists(path) or not os.path.islink(path):
        return ""
    return f"; {path} is a link to {os.readlink(path)}, which does not exist"


def write_text(path: str, text: str) -> None:
    """Writes a file in UTF-8 under a temporary name, then renames it to `path`.

    Bytes of names that are not UTF-8, which Python keeps as lone surrogates, are written as
    escapes.
    """
    data = text.encode("utf-8", "backslashreplace")
    part = f"{path}.{secrets.token_hex(4)}.part"  # Another process may write it, too.
    _write(part, data, path)
    try:
        tf.io.gfile.rename(part, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(OSError, tf.errors.OpError):
            tf.io.gfile.remove(part)
        raise
    sync(os.path.dirname(path) or ".")


def _write(path: str, data: bytes, shown: str) -> None:
    """Writes a file to the disk; an error names the path `shown`."""
    if "://" in path:
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(data)
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = shown  # An error of an open file names none.
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Keeps other processes that lock the folder out, for a moment; where it has no locks, none."""
    if "://" in folder:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # NFS locks no folders.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def sync_tree(folder: str) -> None:
    """Waits until a folder and all that is in it are on disk."""
    if "://" in folder:
        return
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(parent, name))
        sync(parent)


def write_json(path: str, value: Any) -> None:
    """Writes `value` as standard JSON; NaN and infinite numbers become null."""
    write_text(path, as_json(value, indent=2) + "\n")


def as_json(value: Any, indent: Optional[int] = None) -> str:
    """Returns `value` as standard JSON in one line; NaN and infinite numbers become null."""
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
    return json.dumps(finite, indent=indent, allow_nan=False)


def read_json(path: str, attempts: int = 5) -> Any:
    """Reads a JSON file; again if NFS calls it stale, since another machine has just replaced it.

    Raises:
      DamagedError: the content is not JSON.
    """
    try:
        return json.loads(read_bytes(path))
    except tf.errors.AbortedError:
        if attempts == 1:
            raise
        return read_json(path, attempts - 1)
    except (ValueError, RecursionError, tf.errors.FailedPreconditionError) as error:
        raise DamagedError(path, str(error)) from error  # The last one: it is a folder.


def read_bytes(path: str) -> bytes:
    """Reads a whole file, also while another process replaces it.

    Without a number, GFile reads as many bytes as the file has that is at the path by then.
    """
    with tf.io.gfile.GFile(path, "rb") as file:
        return b"".join(iter(lambda: file.read(_CHUNK_BYTES), b""))


def exists(path: str) -> bool:
    """Returns whether there is a file or folder at `path`.

    `tf.io.gfile.exists` returns False, too, if this user may not look into the folder.

    Raises:
      tf.errors.PermissionDeniedError: this user may not look into the folder.
    """
    try:
        tf.io.gfile.stat(path)
    except (tf.errors.NotFoundError, tf.errors.FailedPreconditionError):
        return False
    return True
