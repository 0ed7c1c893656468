"""The errors that end a command with one clear line.

LaunchError      the caller's mistake: exit code 2
└── HostError    a host or a run is not as it should be: exit code 1
"""

from collections.abc import Iterable


class LaunchError(Exception):
    """A mistake of the user's; the message gives the value, the rule and the way out."""

    exit_code = 2


class HostError(LaunchError):
    """A host cannot be reached, or cannot do what the job asks of it."""

    exit_code = 1


def below_each_other(reasons: Iterable[str]) -> str:
    """Several reasons as one message: they line up behind the `error: ` that goes before it."""
    return "\n       ".join(reasons)
