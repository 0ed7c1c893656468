"""How a task or a job ended: its cause, its description in words, and its exit code."""

import enum
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional


class ExitReason(enum.Enum):
    """Why a job ended; status files hold the values."""

    DONE = "done"  # The master or chief ended with exit code 0.
    TASK_FAILED = "task failed"  # A task failed, or could not be started.
    HOST_LOST = "host lost"  # A host, or the connection to it, was lost.
    TIME_LIMIT = "time limit"  # A time limit of the launcher or of the platform was reached.
    USER = "user"  # The user sent a signal to the launcher, or called `stop`.
    CANCELLED = "cancelled"  # Somebody ended the job with the platform's own tools.
    PREEMPTED = "preempted"  # Another job took the place of this one.
    PLATFORM = "platform"  # The platform asked tasks to end, and gave no reason.
    LAUNCHER = "launcher"  # An error of the launcher ended the job.


@dataclass(frozen=True)
class Result:
    """How a job ended.

    Attributes:
      exit_code: 0 if the job is done; the code of the first task that failed (128 + n for signal
        n); 124 for a time limit; 128 + n if signal n stopped the job.
      reason: why the job ended, in one line of text.
      task: the name of the task that failed; None if none did.
      details: the last lines of that task's output, the path of its log, and what the chief saved
        when it was stopped.
      cause: why the job ended; None if that is not known.
    """

    exit_code: int
    reason: str
    task: Optional[str] = None
    details: tuple[str, ...] = ()
    cause: Optional[ExitReason] = None


def end_record(result: Optional[Result]) -> dict[str, Any]:
    """Returns the status file's fields about the end of a job; all are None while it runs."""
    if result is None:
        return {"exit_code": None, "reason": None, "cause": None}
    cause = None if result.cause is None else result.cause.value
    return {"exit_code": result.exit_code, "reason": result.reason, "cause": cause}


def read_cause(status: Mapping[str, Any]) -> Optional[ExitReason]:
    """Returns the cause in a status file; None if it is unknown or, as in older files, missing."""
    return next((cause for cause in ExitReason if cause.value == status.get("cause")), None)


def words_for(code: Optional[int]) -> str:
    """Describes how a process ended: `exit code 3`, or `killed by SIGKILL`.

    Args:
      code: its exit code, or -n if signal n killed it; None if it was lost.
    """
    if code is None:
        return "lost"
    if code >= 0:
        return f"exit code {code}"
    names = {known.value: known.name for known in signal.Signals}
    return f"killed by {names.get(-code, f'signal {-code}')}"


def exit_code_of(code: Optional[int]) -> int:
    """Returns the launcher's exit code after a task failed with `code`, see `words_for`."""
    if not code:  # lost or not started; or 0 from a ps that was not asked to end
        return 1
    return 128 - code if code < 0 else code
