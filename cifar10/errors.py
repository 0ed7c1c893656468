"""Exceptions that end a command with one clear line, not a traceback. Standard library only.

UserError            a mistake of the user (exit code 2)
├── ConfigError      a wrong value of a flag, or settings that contradict each other
├── DataError        the records are missing or damaged
└── DamagedError     a file of a run, or a checkpoint, is damaged
TrainingError        training failed (exit code 1)
Stopped              not a mistake: a signal ended the run (exit code 128 + signal number)
TrainingOver         not a mistake: a worker joined after training had ended (exit code 0)
"""

from typing import Optional


class UserError(Exception):
    """A mistake of the user; the message gives the value, the rule and a way to correct it."""


class ConfigError(UserError):
    """A setting has a value that is not allowed, or contradicts another setting."""


class DataError(UserError):
    """The records are missing or damaged, or do not match the schema."""


class DamagedError(UserError):
    """A file of a run, or a checkpoint, is damaged.

    Args:
      path: path of the file.
      why: what is wrong with it.
      way_out: what the user can do.
    """

    def __init__(self, path: str, why: str, way_out: str = "move it away or mend it") -> None:
        super().__init__(f"{path} is damaged ({why}); {way_out}")


class TrainingError(Exception):
    """Training failed, for example because the loss became NaN."""


class Stopped(Exception):
    """A signal ended the run.

    Attributes:
      signum: number of the signal.
      saved: path of the checkpoint from which the run continues; None: there is none.
    """

    def __init__(self, signum: int, saved: Optional[str] = None) -> None:
        super().__init__(f"stopped by signal {signum}; run the same command to continue")
        self.signum, self.saved = signum, saved


class TrainingOver(Exception):
    """The cluster had already ended its training, at this global step, when this task joined."""

    def __init__(self, step: int) -> None:
        super().__init__(f"training is over at step {step:,}")


def describe_error(error: Exception) -> tuple[str, int]:
    """Returns the last line of a process that such an exception ends, and its exit code."""
    if isinstance(error, Stopped):
        return str(error), 128 + error.signum
    if isinstance(error, TrainingOver):
        return "training is over; the others have gone", 0
    if isinstance(error, UserError):
        return f"error: {error}", 2
    return f"training failed: {error}", 1
