"""Turns TensorFlow's errors about the user's data and settings into one clear line each."""

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterator
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10 import tf_internals
from cifar10.config.train_config import TrainConfig
from cifar10.errors import DataError, TrainingError, UserError
from cifar10.host.files import whose
from cifar10.input.pipeline import BAD_RECORD, REPLACED

_CONTINUE = "then run the same command to continue"
_SHOW = threading.excepthook


@contextlib.contextmanager
def clear_errors(config: TrainConfig) -> Iterator[None]:
    """Translates what a session or the writing of a file raises.

    Raises:
      DataError: a record is damaged or does not follow the schema, or the records were replaced.
      UserError: disk space or memory is exhausted, a disk is read-only, a file may not be read or
        written or is a folder, or a checkpoint is damaged or of another model.
      TrainingError: the chief does not begin a session.
    """
    before, threading.excepthook = threading.excepthook, _leave_to_main_thread
    try:
        yield
    except (OSError, tf.errors.OpError, RuntimeError) as error:  # the last: of event files
        explained = _explained(config, error)
        if explained is None:
            raise
        raise explained from error
    finally:
        threading.excepthook = before


def _leave_to_main_thread(failed: threading.ExceptHookArgs) -> None:
    # A full disk ends the thread that writes an event file, and the next flush raises its error.
    if not tf_internals.DISK_FAILURE.search(str(failed.exc_value)):
        _SHOW(failed)


def _explained(config: TrainConfig, error: Any) -> Optional[Exception]:
    """Returns the error to show for this one; None if the user cannot fix it."""
    message, data = getattr(error, "message", str(error)), config.data_path
    reason, forbidden = tf_internals.reason(message), tf_internals.forbidden_file(message)
    forbidden = error.filename if isinstance(error, PermissionError) else forbidden
    if tf_internals.SESSION_TIMEOUT.search(message):
        return TrainingError(
            "the chief answers, but it has begun no session for a minute and for "
            f"--cluster-timeout {config.cluster_timeout:g}; see what it says, or raise that"
        )
    if tf_internals.FAILED_RESTORE.search(message):
        missing = tf_internals.MISSING_VARIABLE.search(message)
        return UserError(
            f"the checkpoint in {config.checkpoint_path or config.output_path} cannot be "
            f"restored ({missing[0] if missing else 'it is damaged'}); give the "
            "flags that it was trained with, name another one by --checkpoint, or train anew with "
            "another --output-dir"
        )
    if tf_internals.DISK_FAILURE.search(message):
        return UserError(f"cannot write: {reason}; free or repair the disk, {_CONTINUE}")
    if os.strerror(errno.EISDIR) in message:
        # A file is written as PATH.RANDOM.part, then renamed.
        path = getattr(error, "filename", None) or re.sub(r"(\.[0-9a-f]{8}\.part)?; .*", "", reason)
        return UserError(f"{path} is a folder; move it away, {_CONTINUE}")
    if forbidden:
        hint = f"let this user read and write there, {_CONTINUE}"
        return UserError(f"no access: {reason}{whose(forbidden)}; {hint}")
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return UserError(f"out of memory: {reason}; free some, or use a smaller --train-batch-size")
    is_missing = isinstance(error, tf.errors.NotFoundError)
    is_gone = is_missing and tf_internals.names_file_in(data, message)
    fault, first = tf_internals.failed_assertion(message, BAD_RECORD), ""
    if isinstance(error, tf.errors.DataLossError):
        fault = "a file is damaged"
    elif tf_internals.NOT_AN_EXAMPLE.search(message):
        fault = "a record is not an image with a label"
    elif is_gone or REPLACED in message or tf_internals.OTHER_NUMBER.search(message):
        fault, first = "records were replaced while they were read", "when data_prep has ended, "
    hint = f"{first}check all by `python -m data_prep verify {data}`, {_CONTINUE}"
    return DataError(f"{fault} in {data}; {hint}") if fault else None
