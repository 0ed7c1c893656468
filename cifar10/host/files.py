"""Reads and writes small files by tf.io.gfile; a file is replaced by renaming.

On local file systems and NFS, a file reaches the disk before its new name does. So a machine that
loses power keeps the old file or the new one, never an empty one.
"""

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, DamagedError, UnreadableError

# What stays until the user changes it; other errors of a file system may pass by themselves.
_REFUSALS = (
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.FailedPreconditionError,  # It is a folder, or a part of its path is a file.
)
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
    probe = tf.io.gfile.join(folder, ".write-probe")
    try:
        tf.io.gfile.makedirs(folder)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
        with contextlib.suppress(tf.errors.NotFoundError):  # Another process has removed it.
            tf.io.gfile.remove(probe)
    except tf.errors.OpError as error:
        end = f"; {way_out}" if way_out else ""
        raise ConfigError(f"{name} {folder} cannot be written to: {error.message}{end}") from error


def write_text(path: str, text: str) -> None:
    """Writes a file in UTF-8 under a temporary name, then renames it to `path`.

    Bytes of names that are not UTF-8, which Python keeps as lone surrogates, are written as
    escapes.
    """
    part = f"{path}.part"
    with tf.io.gfile.GFile(part, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    sync(part)
    tf.io.gfile.rename(part, path, overwrite=True)
    sync(os.path.dirname(path) or ".")


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
