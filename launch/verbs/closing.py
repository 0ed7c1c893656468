"""The last lines that `up` prints."""

import shlex
import sys
from typing import Optional

from cifar10_program import command_line
from launch.record.outcome import Cause, Outcome

# After these, the same command continues the training.
_CONTINUABLE = (
    Cause.USER,
    Cause.PLATFORM,
    Cause.PREEMPTED,
    Cause.TIME_LIMIT,
    Cause.HOST_LOST,
)
_HANGUP_CODE = 129  # The terminal is gone; some jobs go on without their launcher.


def closing_lines(outcome: Outcome, command: Optional[str] = None) -> list[str]:
    """Returns what is known of a job's end, the command that continues it, and the reason.

    Args:
      outcome: how the job ended.
      command: the command that started it; by default this process's, if that is `up`.
    """
    words = f"exit code {outcome.exit_code}: " if outcome.exit_code else ""
    reason = f"{words}{outcome.reason}"
    if command is None and sys.argv[1:2] == ["up"]:
        command = own_command()
    is_left = outcome.exit_code in (0, _HANGUP_CODE)
    continues = command and not is_left and outcome.cause in _CONTINUABLE
    way_on = [f"to continue: {command}"] if continues else []
    return [*outcome.details, *way_on, reason]


def own_command() -> str:
    """Returns the command of this process, as its user typed it, except for quotes."""
    words = command_line()
    if words[0] == "python":
        words[0] = getattr(sys, "orig_argv", words)[0]  # from Python 3.10 on
    return shlex.join(words)
