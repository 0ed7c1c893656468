"""The last lines that `up` prints."""

import shlex
import sys

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


def closing_lines(outcome: Outcome) -> list[str]:
    """Returns what is known of a job's end, the command that continues it, and the reason."""
    words = f"exit code {outcome.exit_code}: " if outcome.exit_code else ""
    reason = f"{words}{outcome.reason}"
    is_up = sys.argv[1:2] == ["up"]
    is_left = outcome.exit_code in (0, _HANGUP_CODE)
    continues = is_up and not is_left and outcome.cause in _CONTINUABLE
    command = [f"to continue: {_own_command()}"] if continues else []
    return [*outcome.details, *command, reason]


def _own_command() -> str:
    """Returns the command of this process, as its user typed it, except for quotes."""
    words = command_line()
    if words[0] == "python":
        words[0] = getattr(sys, "orig_argv", words)[0]  # from Python 3.10 on
    return shlex.join(words)
