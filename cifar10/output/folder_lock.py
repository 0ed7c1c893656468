"""Keeps a second run out of an output folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

from cifar10.errors import TrainingError, UserError
from cifar10.host.console import say
from cifar10.host.lock_file import STALE_SECS, LockFile, LockHeld

TRAINING, EVALUATOR = "training", "evaluator"


@contextlib.contextmanager
def hold(output_dir: str, role: str, check: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Holds the folder for this process; only local paths and NFS can be locked, not `gs://`.

    Args:
      output_dir: path of the output folder, which exists.
      role: TRAINING or EVALUATOR; a folder may have one process of each.
      check: function called repeatedly while the lock is waited for; an exception that it raises
        ends the wait.

    Yields:
      A function that raises TrainingError if another process has taken the folder over.

    Raises:
      UserError: another process of this role uses the folder.
    """
    if "://" in output_dir:
        yield lambda: None
        return
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(LockFile(Path(output_dir, f".{role}.lock"), say, check))
        except LockHeld as holder:
            raise UserError(
                f"{output_dir} is used by another {role}: {holder}; wait until it has ended, or "
                "name another --output-dir"
            ) from None

        def check_owner() -> None:
            if not lock.is_ours():
                raise TrainingError(
                    f"another process has taken {output_dir} over, since this one did not run for "
                    f"{STALE_SECS:g} s"
                )

        yield check_owner
