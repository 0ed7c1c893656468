"""The errors that end a command with one clear line.

LaunchError      a mistake of the user's: exit code 2
└── HostError    a host, or what is kept of a run, cannot be used: exit code 1
"""

from collections.abc import Iterable


class LaunchError(Exception):
    """A mistake of the user's; the message gives the value, the rule and the way out."""

    exit_code = 2


class HostError(LaunchError):
    """A host cannot be reached, or cannot do what the job asks of it."""

    exit_code = 1


def below_each_other(reasons: Iterable[str]) -> str:
    """Joins several reasons to one message, lined up behind the `error: ` in front of it."""
    return "\n       ".join(reasons)
