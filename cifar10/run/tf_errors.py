"""Turns TensorFlow's errors about the user's data and settings into one clear line each."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import tf_internals
from cifar10.config.train_config import TrainConfig
from cifar10.errors import DataError, TrainingError, UserError
from cifar10.host.files import whose
from cifar10.input.pipeline import BAD_RECORD, REPLACED

_DISK_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_DISK = "cannot write: {}; free or repair the disk, then run the same command to continue"
_ACCESS = (
    "no access: {}{}; let this user read and write there, then run the same command to continue"
)


@contextlib.contextmanager
def clear_errors(config: TrainConfig) -> Iterator[None]:
    """Translates what a session or the writing of a file raises.

    Raises:
      DataError: a record is damaged or does not follow the schema, or the records were replaced.
      UserError: disk space or memory is exhausted, a disk is read-only, a file may not be read or
        written, or a checkpoint is damaged or of another model.
      TrainingError: the master does not begin a session.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        explained = _of_os(error) if isinstance(error, OSError) else _of_session(config, error)
        if explained is None:
            raise
        raise explained from error


def _of_os(error: OSError) -> Optional[UserError]:
    if error.errno in _DISK_FAILS:
        return UserError(_DISK.format(error))
    if error.errno in _FORBIDDEN and error.filename:
        return UserError(_ACCESS.format(error, whose(os.fspath(error.filename))))
    return None


def _of_session(config: TrainConfig, error: Any) -> Optional[Exception]:
    """Returns the error to show for one of TensorFlow's; None if the user cannot fix it."""
    message, data, place = error.message, config.data_place, config.output_place
    reason, forbidden = tf_internals.reason(message), tf_internals.forbidden_file(message)
    find_record = f"in {data}; `python -m data_prep verify {data}` names it"
    if tf_internals.is_session_timeout(message):
        return TrainingError(
            "the master answers, but it has begun no session for a minute and for "
            f"--cluster-timeout {config.cluster_timeout:g}; see what it says, or raise that"
        )
    if tf_internals.is_failed_restore(message):
        missing = tf_internals.missing_variable(message)
        return UserError(
            f"the checkpoint in {config.checkpoint_place or place} "
            + (
                f"is of another model ({missing}); give the flags that it was trained with"
                if missing
                else "is damaged; name another one by --checkpoint, or train anew with another "
                "--output-dir"
            )
        )
    if isinstance(error, tf.errors.DataLossError):
        return DataError(f"a file is damaged {find_record}")
    if tf_internals.is_disk_failure(message):
        return UserError(_DISK.format(reason))
    if forbidden:
        return UserError(_ACCESS.format(reason, whose(forbidden)))
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return UserError(f"out of memory: {reason}; free some, or use a smaller --train-batch-size")
    is_gone = isinstance(error, tf.errors.NotFoundError) and tf_internals.names_file_in(
        data, message
    )
    if is_gone or REPLACED in message or tf_internals.is_other_number(message):
        return DataError(
            f"the records in {data} were replaced while they were read; when data_prep has ended, "
            "run the same command again"
        )
    broken_rule = tf_internals.failed_assertion(message, BAD_RECORD)
    if not broken_rule and tf_internals.is_not_an_example(message):
        broken_rule = "a record is not an image with a label"
    return DataError(f"{broken_rule} {find_record}") if broken_rule else None
