"""Reads and writes small files; a file is replaced by renaming.

On local file systems and NFS, a file reaches the disk before its new name does. So a machine that
loses power keeps the old file or the new one, never an empty one. No link is followed in writing.
"""

import contextlib
import errno
import json
import math
import os
import pwd
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, DamagedError, UnreadableError
from cifar10_program.paths import real as real

# What stays until the user changes it; other errors of a file system may pass by themselves.
_REFUSALS = (
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.FailedPreconditionError,  # It is a folder, or a part of its path is a file.
)
PART = r".+\.[0-9a-f]{8}\.part"  # the names of files that are being written
_STALE, _STALE_ATTEMPTS = os.strerror(errno.ESTALE), 5


def require_writable(folder: str, name: str, way_out: str = "") -> None:
    """Makes a folder, and creates and removes a file in it.

    Args:
      folder: path of the folder.
      name: what the message calls the folder.
      way_out: the end of the message, which says what the user can do.

    Raises:
      ConfigError: the folder cannot be made or written to.
    """
    try:
        if "://" not in folder:
            _refuse_dangling_link(folder, name)
        tf.io.gfile.makedirs(folder)
        probe = _write_beside(tf.io.gfile.join(folder, ".write-probe"), b"")
        with contextlib.suppress(FileNotFoundError, tf.errors.NotFoundError):
            tf.io.gfile.remove(probe)  # Unless another process has done so.
    except (OSError, tf.errors.OpError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        end = f"; {way_out}" if way_out else ""
        raise ConfigError(
            f"{name} {folder} cannot be written to: {reason}{whose(folder)}{end}"
        ) from error


def whose(path: str) -> str:
    """Returns `; PATH belongs to ann, and this process is ben`; empty if nobody knows.

    Args:
      path: path of a file or folder; if it does not exist, the nearest folder that does counts.
    """
    places = () if "://" in path else (Path(path).absolute(), *Path(path).absolute().parents)
    for place in places:
        with contextlib.suppress(OSError):
            if place.exists():
                owner, own = place.stat().st_uid, os.geteuid()
                return f"; {place} belongs to {_user(owner)}, and this process is {_user(own)}"
    return ""


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _refuse_dangling_link(folder: str, name: str) -> None:
    for place in (Path(folder), *Path(folder).parents):
        if place.is_symlink() and not place.exists():
            raise ConfigError(
                f"{name} {folder} cannot be used: {place} is a link to {os.readlink(place)}, which "
                "does not exist; make that folder, or name another one"
            )


def write_text(path: str, text: str) -> None:
    """Writes a file in UTF-8 under a temporary name, then renames it to `path`.

    Bytes of names that are not UTF-8, which Python keeps as lone surrogates, are written as
    escapes.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        _replace(path, data)
    except (FileNotFoundError, tf.errors.NotFoundError):
        # A process that starts removes unfinished files, and may have taken this one for left.
        _replace(path, data)


def _replace(path: str, data: bytes) -> None:
    part = _write_beside(path, data)
    try:
        tf.io.gfile.rename(part, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(OSError, tf.errors.OpError):
            tf.io.gfile.remove(part)
        raise
    sync(os.path.dirname(path) or ".")


def _write_beside(path: str, data: bytes) -> str:
    """Writes a new file beside `path`, and to the disk; returns its path, which `PART` matches."""
    part = f"{path}.{secrets.token_hex(4)}.part"
    if "://" in path:
        with tf.io.gfile.GFile(part, "wb") as file:
            file.write(data)
        return part
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = path  # which an error of an open file does not name
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    return part


def sync(path: str) -> None:
    """Waits until the content of a file, or the entries of a folder, are on disk.

    Args:
      path: path of a file or folder; for one with a scheme, such as `gs://`, nothing is done.
    """
    if "://" in path:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems flush folders by themselves and refuse fsync on them.
        if error.errno != errno.EINVAL or not os.path.isdir(path):
            raise
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
    write_text(path, json.dumps(_finite(value), indent=2, allow_nan=False) + "\n")


def as_json(value: Any) -> str:
    """Returns `value` as standard JSON in one line; NaN and infinite numbers become null."""
    return json.dumps(_finite(value), allow_nan=False)


def read_json(path: str) -> Any:
    """Reads a JSON file.

    Raises:
      UnreadableError: the file cannot be read.
      DamagedError: the content is not JSON.
    """
    try:
        with readable(path):
            return json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, str(error)) from error


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Raises UnreadableError if the file system refuses to read `path`.

    That a file is missing stays TensorFlow's NotFoundError.
    """
    try:
        yield
    except _REFUSALS as error:
        raise _unreadable(path, error) from error


def require_readable(pattern: str) -> None:
    """Opens each file that matches a pattern.

    A file that another process has removed meanwhile is not unreadable, and an error of a disk or a
    network is left to who uses the file.

    Raises:
      UnreadableError: the file system refuses to read one of them, or to list their folder.
    """
    paths: list[str] = []
    with contextlib.suppress(tf.errors.OpError), readable(pattern):
        paths = tf.io.gfile.glob(pattern)
    for path in paths:
        with (
            contextlib.suppress(tf.errors.OpError),
            readable(path),
            tf.io.gfile.GFile(path, "rb") as file,
        ):
            file.read(1)


def exists(path: str) -> bool:
    """Returns whether there is a file or folder at `path`.

    `tf.io.gfile.exists` returns False, too, if this user may not look into the folder.

    Raises:
      UnreadableError: this user may not look into the folder.
    """
    try:
        tf.io.gfile.stat(path)
    except (tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError) as error:
        raise _unreadable(path, error) from error
    except tf.errors.NotFoundError:
        return False
    except tf.errors.OpError:
        return bool(tf.io.gfile.exists(path))
    return True


def _unreadable(path: str, error: Any) -> UnreadableError:
    reason = error.message.rpartition("; ")[2]
    way_out = "let this user read it and enter its folder"
    if isinstance(error, tf.errors.FailedPreconditionError):
        way_out = "move it away"
    return UnreadableError(f"{path} cannot be read: {reason}; {way_out}, or name another folder")


def _read_text(path: str) -> str:
    """Reads a file; again if NFS calls it stale, since another machine has just replaced it."""
    for attempts_left in reversed(range(_STALE_ATTEMPTS)):
        try:
            with tf.io.gfile.GFile(path) as file:
                return str(file.read())
        except tf.errors.OpError as error:
            if not attempts_left or _STALE not in str(error):
                raise
    raise AssertionError("unreachable")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
