"""The errors that end a command with a clear message.

LaunchError               the user made a mistake, and nothing was started: exit code 2
└── HostError             a host, or the saved state of a run, cannot be used: exit code 1
    └── NotHereError      nothing was started: a program is missing here, or a cluster refuses
"""

from collections.abc import Iterable


class LaunchError(Exception):
    """The user made a mistake; the message gives the value, the rule and the remedy."""

    exit_code = 2


class HostError(LaunchError):
    """A host or the saved state of a run cannot be used."""

    exit_code = 1


class NotHereError(HostError):
    """Nothing was started: this machine lacks a program, such as sbatch, or a cluster refuses."""


def below_each_other(reasons: Iterable[str]) -> str:
    """Joins reasons into one message, one per line, indented to align after `error: `."""
    return "\n       ".join(reasons)
