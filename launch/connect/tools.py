"""Calls tools such as kubectl and sbatch, and says what errors of tools and of ssh mean."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from launch.agent.processes import execute
from launch.errors import HostError, NotHereError

# (regular expression for a tool's standard error, what that means, with a hint)
Meanings = Sequence[tuple[str, str]]

PYTHON: Meanings = (
    (
        r"command not found|python\S*: not found|execve\(\): .*No such file",
        "it has no {python} on PATH; say `agent_python:`",
    ),
    ("needs Python 3.9", "its {python} is older than 3.9; say `agent_python:`"),
)


def call(
    command: Sequence[str],
    timeout_secs: float,
    hint: str,
    *,
    given: str = "",
    env: Optional[Mapping[str, str]] = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs a tool to its end, with this process at the latest; returns its result.

    Args:
      command: the tool and its arguments.
      timeout_secs: how long to wait for its end.
      hint: what to do if the tool is not installed.
      given: the text for its standard input.
      env: its environment; None for this process's.

    Raises:
      NotHereError: it is not installed.
      HostError: it cannot be run, or did not end in time.
    """
    tool = command[0]
    if shutil.which(tool) is None:
        raise NotHereError(f"no {tool} on PATH here; {hint}")
    try:
        return execute(command, timeout_secs, given=given, env=env)
    except OSError as error:
        raise HostError(f"{tool}: {error.strerror or error}") from None


def await_end(left: Callable[[], str], secs: float, pause_secs: float = 1.0) -> None:
    """Asks what is left until it is nothing; HostError, which names it, after some seconds."""
    deadline = time.monotonic() + secs
    while words := left():
        if time.monotonic() > deadline:
            raise HostError(f"{words}: not ended within {secs:g} s")
        time.sleep(pause_secs)


def meaning(meanings: Meanings, errors: str, **facts: object) -> Optional[str]:
    """Returns what a tool's standard error means, with a hint; None if that is unknown.

    Args:
      meanings: the known errors; case does not matter, and the first match counts.
      errors: the tool's standard error.
      **facts: values for the placeholders in the texts; `said` is what a pattern has matched.
    """
    for pattern, text in meanings:
        if found := re.search(pattern, errors, re.IGNORECASE):
            return text.format(said=found[0].strip(), **facts)
    return None


def last_line(errors: str, otherwise: str) -> str:
    """Returns the last line of a tool's standard error that is not blank, or else `otherwise`."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1] if lines else otherwise
