"""What the messages of TensorFlow's errors say.

Touches: their wording.

Why: an error's class is too coarse. InvalidArgumentError stands for a damaged record, for a
checkpoint of another model and for a mistake in the graph alike, and of what a message reports
nothing but the op can be had by public API.
"""

import re
from typing import Optional

_NOT_AN_EXAMPLE = re.compile(r"Could not parse example|Feature: \w+ \(data type|Key: \w+[.,]")
_RESTORE_FAILED = re.compile(r"RestoreV2|Restoring from checkpoint failed")
_MISSING_VARIABLE = re.compile(r"Key \S+ not found in checkpoint")
_NO_SESSION = "Session was not ready after waiting"
_AFTER_NODE = re.compile(r"^Node: .*\n(.+)$", re.MULTILINE)


def is_not_an_example(message: str) -> bool:
    """Whether a record is no tf.train.Example, or one without the features asked for."""
    return bool(_NOT_AN_EXAMPLE.search(message))


def is_failed_restore(message: str) -> bool:
    """Whether a checkpoint could not be read, or has not what the graph wants."""
    return bool(_RESTORE_FAILED.search(message))


def missing_variable(message: str) -> Optional[str]:
    """`Key dense/kernel not found in checkpoint`; None where it is about something else."""
    found = _MISSING_VARIABLE.search(message)
    return found[0] if found else None


def is_session_timeout(message: str) -> bool:
    """Whether a worker has waited in vain for the chief's session."""
    return _NO_SESSION in message


def failed_assertion(message: str, start: str) -> Optional[str]:
    """What an assertion in the graph says, from `start` on; None where it is about another one."""
    if start not in message:
        return None
    return message[message.index(start) :].splitlines()[0].split("]")[0].strip()


def reason(message: str) -> str:
    """The line that says what happened: the one after the op's name, else the first."""
    found = _AFTER_NODE.search(message)
    return (found[1] if found else message.splitlines()[0]).strip()
