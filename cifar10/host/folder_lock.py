"""Keeps a second run out of an output folder, and out of a log folder beside it."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError, UserError
from cifar10.host import lock_file
from cifar10.host.console import say
from cifar10.host.files import real, whose, write_text

TRAINING, EVALUATOR = "training", "evaluator"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def hold(
    output_dir: str, log_dir: str, role: str, check: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Holds both folders for this process.

    The log folder has metrics.jsonl and event files, which hold the rows of one run.

    Args:
      output_dir: path of the output folder, which exists.
      log_dir: path of the log folder, which exists; it may be the same folder.
      role: TRAINING or EVALUATOR; a folder may have one process of each.
      check: function called repeatedly while a lock is waited for; an exception that it raises ends
        the wait.

    Yields:
      A function that raises TrainingError if another process has taken a folder over.

    Raises:
      UserError: another process of this role uses one of the folders.
    """
    flags = {output_dir: "--output-dir"}
    if real(log_dir) != real(output_dir):
        flags[log_dir] = "--log-dir"
    with contextlib.ExitStack() as stack:
        held = [
            (folder, stack.enter_context(_held(folder, flag, role, check)))
            for folder, flag in flags.items()
        ]

        def check_owner() -> None:
            for folder, is_ours in held:
                if not is_ours():
                    raise TrainingError(
                        f"another process has taken {folder} over, or .{role}.lock was removed"
                    )

        yield check_owner


@contextlib.contextmanager
def _held(
    folder: str, flag: str, role: str, check: Callable[[], None]
) -> Iterator[Callable[[], bool]]:
    """Holds a folder that the user chose by `flag`; yields what tells whether it is still ours."""
    path = str(tf.io.gfile.join(folder, f".{role}.lock"))
    with contextlib.ExitStack() as stack:
        try:
            if "://" in folder:
                raise OSError(errno.ENOSYS, "object stores have no locks")
            is_ours = stack.enter_context(lock_file.hold(Path(path), say, check))
        except lock_file.LockHeld as holder:
            raise UserError(
                f"{folder} is used by another {role}: {holder}; wait until it has ended, or "
                f"name another {flag}"
            ) from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise UserError(f"{path} is a link, which is not followed; remove it") from error
            if isinstance(error, PermissionError):
                raise UserError(
                    f"{path} may not be opened{whose(path)}; if no {role} uses {folder}, remove it"
                ) from error
            if error.errno not in _NO_LOCKS:
                raise
            is_ours = stack.enter_context(_named(path, folder))
        yield is_ours


@contextlib.contextmanager
def _named(path: str, folder: str) -> Iterator[Callable[[], bool]]:
    """Puts this process's name into a file, where there are no locks: the newest name counts."""
    own, before = lock_file.this_process(), _read(path)
    if before:
        say(f"note: {folder} was used by {before}; if that still runs, its next save ends it")
    write_text(path, own)
    try:
        yield lambda: _read(path) == own
    finally:
        with contextlib.suppress(tf.errors.OpError):  # The run has its results.
            if _read(path) == own:
                tf.io.gfile.remove(path)


def _read(path: str) -> str:
    with contextlib.suppress(tf.errors.NotFoundError), tf.io.gfile.GFile(path, "rb") as file:
        return " ".join(file.read(300).decode("utf-8", "replace").partition("\n")[0].split())
    return ""
