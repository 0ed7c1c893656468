"""How a task or a job ended: its cause, in words, and as an exit code."""

import enum
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional


class Cause(enum.Enum):
    """Why a job ended; the values stand in status files."""

    DONE = "done"  # the master or chief has ended with 0
    TASK_FAILED = "task failed"  # or could not be started
    HOST_LOST = "host lost"  # or the connection to it
    TIME_LIMIT = "time limit"  # one of ours, or of the platform's
    USER = "user"  # a signal to the launcher, or `stop`
    CANCELLED = "cancelled"  # by somebody, with the platform's own means
    PREEMPTED = "preempted"  # by another job
    PLATFORM = "platform"  # the platform asked tasks to end, and has not said why
    LAUNCHER = "launcher"  # the launcher could not go on


@dataclass(frozen=True)
class Outcome:
    """How the job ended.

    Attributes:
      exit_code: that of the first task that failed (128 + n for signal n); 124 for a time limit;
        128 + n if signal n stopped the job.
      reason: one line of text.
      task: the task that failed, if one did.
      details: the last lines of that task, and the path of its log.
      cause: why the job ended; None where that is not known.
    """

    exit_code: int
    reason: str
    task: Optional[str] = None
    details: tuple[str, ...] = ()
    cause: Optional[Cause] = None


def end_record(outcome: Optional[Outcome]) -> dict[str, Any]:
    """Returns the fields of a status file about the end; their values are None before it."""
    if outcome is None:
        return {"exit_code": None, "reason": None, "cause": None}
    cause = None if outcome.cause is None else outcome.cause.value
    return {"exit_code": outcome.exit_code, "reason": outcome.reason, "cause": cause}


def read_cause(status: Mapping[str, Any]) -> Optional[Cause]:
    """Returns the cause in a status file; None if it has none, as older files, or another."""
    return next((cause for cause in Cause if cause.value == status.get("cause")), None)


def words_for(code: Optional[int]) -> str:
    """Says how a process ended: `exit code 3`, or `killed by SIGKILL`."""
    if code is None:
        return "lost"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def exit_code_of(code: Optional[int]) -> int:
    """Returns the launcher's exit code after a task failed with `code` (-n for signal n)."""
    if not code:  # lost, or a ps that ended though nobody asked it to
        return 1
    return 128 - code if code < 0 else code
