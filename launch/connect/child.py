"""Starts the process of a connection, such as ssh."""

import errno
import subprocess
from collections.abc import Sequence
from typing import IO, Union

from launch.errors import HostError


def start(
    command: Sequence[str],
    errors: int = subprocess.PIPE,
    stdin: Union[int, IO[bytes]] = subprocess.PIPE,
) -> "subprocess.Popen[bytes]":
    """Starts a command with pipes for its streams, unless others are given.

    In a session of its own, Ctrl-C does not reach the process, and ssh has no terminal on which to
    ask for a password.

    Raises:
      HostError: it could not be started; the message says why, and the way out.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise HostError(f"{command[0]}: {error.strerror}; is it installed?") from None
    except OSError as error:
        way_out = "; raise `ulimit -n`" if error.errno == errno.EMFILE else ""
        raise HostError(f"{command[0]}: {error.strerror}{way_out}") from None
