"""Keeps a second run out of an output folder, and out of a log folder beside it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

from cifar10.errors import TrainingError, UserError
from cifar10.host.console import say
from cifar10.host.lock_file import STALE_SECS, LockFile, LockHeld

TRAINING, EVALUATOR = "training", "evaluator"


@contextlib.contextmanager
def hold(
    output_dir: str, log_dir: str, role: str, check: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Holds both folders for this process; only local paths and NFS can be locked, not `gs://`.

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
    if not _are_same(output_dir, log_dir):
        flags[log_dir] = "--log-dir"
    with contextlib.ExitStack() as stack:
        held = [
            (folder, stack.enter_context(_locked(folder, flag, role, check)))
            for folder, flag in flags.items()
            if "://" not in folder
        ]

        def check_owner() -> None:
            for folder, lock in held:
                if not lock.is_ours():
                    raise TrainingError(
                        f"another process has taken {folder} over, since this one did not run for "
                        f"{STALE_SECS:g} s"
                    )

        yield check_owner


def _are_same(one: str, other: str) -> bool:
    """Returns whether two paths name the same folder."""
    if "://" in one or "://" in other:
        return one == other
    return os.path.samefile(one, other)


@contextlib.contextmanager
def _locked(folder: str, flag: str, role: str, check: Callable[[], None]) -> Iterator[LockFile]:
    """Holds the lock of one folder, which the user chose by `flag`."""
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(LockFile(Path(folder, f".{role}.lock"), say, check))
        except LockHeld as holder:
            raise UserError(
                f"{folder} is used by another {role}: {holder}; wait until it has ended, or "
                f"name another {flag}"
            ) from None
        yield lock
