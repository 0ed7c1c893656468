"""The errors that end a command with one clear line instead of a traceback. Standard library only.

UserError        the caller's mistake: exit code 2
├── ConfigError  a flag's value, or flags that contradict each other
└── DataError    the records are missing or damaged
Stopped          not a mistake: a signal asked the run to end (exit code 128 + signal)
TrainingOver     not a mistake: a worker came when training had ended (exit code 0)
"""


class UserError(Exception):
    """A mistake of the user's; the message gives the value, the rule and the way out."""


class ConfigError(UserError):
    """A flag has a value that it cannot have, or contradicts another one."""


class DataError(UserError):
    """The records are missing, damaged or not what the schema says."""


class TrainingError(Exception):
    """Training failed, for example because the loss is not a number any more."""


class Stopped(Exception):
    """A signal asked the run to end; what was trained has been saved.

    Attributes:
      signum: the signal's number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}; run the same command to continue")
        self.signum = signum


class TrainingOver(Exception):
    """The cluster had already ended its training when this task came.

    Attributes:
      step: the global step at its end.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"training is over at step {step:,}")
        self.step = step
