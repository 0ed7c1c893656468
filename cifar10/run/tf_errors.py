"""Turns TensorFlow's errors about the user's data and settings into one clear line each."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import DataError, TrainingError, UserError
from cifar10.host.files import whose
from cifar10.input.pipeline import BAD_RECORD, REPLACED
from cifar10.tf_internals import error_messages

_DISK_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


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
    except OSError as error:
        if error.errno in _DISK_FAILS:
            raise _disk_error(str(error)) from error
        if error.errno in _FORBIDDEN and error.filename:
            raise _forbidden(str(error), os.fspath(error.filename)) from error
        raise
    except tf.errors.OpError as error:
        if error_messages.is_session_timeout(error.message):
            raise TrainingError(
                "the master answers, but it has begun no session for a minute and for "
                f"--cluster-timeout {config.cluster_timeout:g}; see what it says, or raise that"
            ) from error
        explained = _explain(config, error)
        if explained is None:
            raise
        raise explained from error


def _explain(config: TrainConfig, error: Any) -> Optional[UserError]:
    """Returns the error to show for one of TensorFlow's; None if the user cannot fix it."""
    message = error.message
    if error_messages.is_failed_restore(message):
        return _checkpoint_error(config, message)
    if isinstance(error, tf.errors.DataLossError):
        return _data_error(config, "a file is damaged")
    if error_messages.is_disk_failure(message):
        return _disk_error(error_messages.reason(message))
    forbidden = error_messages.forbidden_file(message)
    if forbidden:
        return _forbidden(error_messages.reason(message), forbidden)
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return UserError(
            f"out of memory: {error_messages.reason(message)}; free some, or use a smaller "
            "--train-batch-size"
        )
    if _were_replaced(error, config.data_place):
        return DataError(
            f"the records in {config.data_place} were replaced while they were read; when "
            "data_prep has ended, run the same command again"
        )
    broken_rule = error_messages.failed_assertion(message, BAD_RECORD)
    if broken_rule:
        return _data_error(config, broken_rule)
    if error_messages.is_not_an_example(message):
        return _data_error(config, "a record is not an image with a label")
    return None


def _were_replaced(error: Any, data_place: str) -> bool:
    is_missing = isinstance(error, tf.errors.NotFoundError)
    return (
        REPLACED in error.message
        or error_messages.is_other_number(error.message)
        or (is_missing and error_messages.names_file_in(data_place, error.message))
    )


def _disk_error(reason: str) -> UserError:
    return UserError(
        f"cannot write: {reason}; free or repair the disk, then run the same command to continue"
    )


def _forbidden(reason: str, path: str) -> UserError:
    return UserError(
        f"no access: {reason}{whose(path)}; let this user read and write there, then run the same "
        "command to continue"
    )


def _checkpoint_error(config: TrainConfig, message: str) -> UserError:
    place = config.output_place if config.checkpoint is None else config.place(config.checkpoint)
    missing = error_messages.missing_variable(message)
    if missing:
        return UserError(
            f"the checkpoint in {place} is of another model ({missing}); give the flags that it "
            "was trained with"
        )
    return UserError(
        f"the checkpoint in {place} is damaged; name another one by --checkpoint, or train anew "
        "with another --output-dir"
    )


def _data_error(config: TrainConfig, what: str) -> DataError:
    place = config.data_place
    return DataError(f"{what} in {place}; `python -m data_prep verify {place}` names it")
