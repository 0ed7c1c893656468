"""Recognises causes of errors in the messages of TensorFlow's exceptions.

Touches: the wording of the messages.

Why: the class of an exception does not identify the cause. InvalidArgumentError stands for a
damaged record, a checkpoint of another model and a mistake in the graph; besides the message, the
public API gives only the op.
"""

import errno
import os
import re
from typing import Optional

_NOT_AN_EXAMPLE = re.compile(r"Could not parse example|Feature: \w+ \(data type|Key: \w+[.,]")
_RESTORE_FAILED = re.compile(r"RestoreV2|Restoring from checkpoint failed")
_MISSING_VARIABLE = re.compile(r"Key \S+ not found in checkpoint")
_OTHER_NUMBER = re.compile(r"dataset was expected to contain \d+ elements but contained")
_DISK_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_FORBIDDEN = re.compile(r"(?:.*: )?(.+); (?:Permission denied|Operation not permitted)")
_NO_SESSION = "Session was not ready after waiting"
_FROM_SERVER = re.compile(r"From /job:\S+:")
_AFTER_NODE = re.compile(r"^Node: .*\n(.+)$", re.MULTILINE)


def is_not_an_example(message: str) -> bool:
    """Returns whether a record is not a tf.train.Example with the requested features."""
    return bool(_NOT_AN_EXAMPLE.search(message))


def is_failed_restore(message: str) -> bool:
    """Returns whether restoring a checkpoint failed: it is damaged, or does not fit the graph."""
    return bool(_RESTORE_FAILED.search(message))


def missing_variable(message: str) -> Optional[str]:
    """Returns e.g. `Key dense/kernel not found in checkpoint`; None if no variable is missing."""
    found = _MISSING_VARIABLE.search(message)
    return found[0] if found else None


def is_session_timeout(message: str) -> bool:
    """Returns whether a worker's wait for the chief's session has timed out."""
    return _NO_SESSION in message


def is_disk_failure(message: str) -> bool:
    """Returns whether a file system is full or read-only."""
    return any(os.strerror(one) in message for one in _DISK_FAILS)


def forbidden_file(message: str) -> Optional[str]:
    """Returns the file that this user may not write, or read; None if the message names none."""
    found = _FORBIDDEN.search(reason(message))
    return found[1] if found else None


def failed_assertion(message: str, start: str) -> Optional[str]:
    """Returns the text of a failed assertion in the graph, from `start` on; None without it."""
    if start not in message:
        return None
    return message[message.index(start) :].splitlines()[0].split("]")[0].strip()


def is_other_number(message: str) -> bool:
    """Returns whether a data set had more or fewer elements than it was said to have."""
    return bool(_OTHER_NUMBER.search(message))


def names_file_in(folder: str, message: str) -> bool:
    """Returns whether the message is about a file in this folder."""
    start, words = (re.sub("/+", "/", text) for text in (folder.rstrip("/") + "/", message))
    return bool(re.search(rf"(^|[\s}}]){re.escape(start)}[^/;\s]+(;|$)", words))


def reason(message: str) -> str:
    """Returns the line that states the cause: the one after the op's name, or else the first.

    An error of an op that a server ran has a line that names only the server.
    """
    lines = [line for line in message.splitlines() if not _FROM_SERVER.fullmatch(line.strip())]
    found = _AFTER_NODE.search("\n".join(lines))
    return (found[1] if found else (lines or message.splitlines())[0]).strip()
