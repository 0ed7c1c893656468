"""How a task or a job ended, in words and as an exit code."""

import signal
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Outcome:
    """How the job ended.

    Attributes:
      exit_code: that of the first task that failed (128 + n for signal n); 124 for a time limit.
      reason: one line.
      task: which task failed, if one did.
      details: what it wrote last, and where its log is.
    """

    exit_code: int
    reason: str
    task: Optional[str] = None
    details: tuple[str, ...] = ()


def words_for(code: Optional[int]) -> str:
    """`exit code 3`, or `killed by SIGKILL`."""
    if code is None:
        return "lost"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def exit_code_of(code: Optional[int]) -> int:
    """What the launcher ends with after a task failed with `code` (-n for signal n)."""
    if not code:  # lost, or a ps that ended though nobody asked it to
        return 1
    return 128 - code if code < 0 else code
