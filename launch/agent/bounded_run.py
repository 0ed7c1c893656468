"""Runs a command and collects its output, but no more than a limit."""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

_LIMIT = 1 << 24  # bytes of each stream
_CHUNK = 1 << 16
_LOOK_SECS = 0.1
_DRAIN_SECS = 0.5  # until the output ends; a process in the background may hold it open


def run(
    argv: Sequence[str],
    timeout_secs: Optional[float] = None,
    *,
    cwd: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    own_session: bool = False,
    started: "Optional[Callable[[subprocess.Popen[bytes]], object]]" = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end, without input.

    What processes write that it leaves in the background is not waited for.

    Args:
      argv: the command.
      timeout_secs: the seconds after which to kill it if it still runs; None for no limit.
      cwd: its working directory; None for this process's.
      env: its environment; None for this process's.
      own_session: whether to keep Ctrl-C from reaching it.
      started: a function to call with its process, which other threads may then end.

    Raises:
      OSError: it could not be run, or printed more than 16 MiB and was killed.
      subprocess.TimeoutExpired: it did not end in time and was killed.
    """
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=own_session,
    ) as process:
        try:
            if started is not None:
                started(process)
            stdout, stderr = _collect(process, timeout_secs)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def _collect(
    process: "subprocess.Popen[bytes]", timeout_secs: Optional[float]
) -> "tuple[str, str]":
    deadline = None if timeout_secs is None else time.monotonic() + timeout_secs
    argv: Sequence[str] = process.args  # type: ignore[assignment]  # as `run` has passed it

    def left() -> Optional[float]:
        """Returns the seconds until the limit; None without one, or once the command has ended."""
        secs = None if deadline is None or ended is not None else deadline - time.monotonic()
        if secs is not None and secs <= 0:
            raise subprocess.TimeoutExpired(argv, timeout_secs or 0)
        return secs

    ended: Optional[float] = None  # when the command was seen to have ended
    with selectors.DefaultSelector() as selector:
        found = [bytearray(), bytearray()]
        for stream, collected in zip((process.stdout, process.stderr), found):
            selector.register(stream, selectors.EVENT_READ, collected)  # type: ignore[arg-type]
        while selector.get_map():
            secs = left()
            ready = selector.select(_LOOK_SECS if secs is None else min(secs, _LOOK_SECS))
            if ended is None and process.poll() is not None:
                ended = time.monotonic()
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                if not data:
                    selector.unregister(key.fileobj)
                key.data.extend(data)
                if len(key.data) > _LIMIT:
                    raise OSError(f"{argv[0]} printed more than {_LIMIT >> 20} MiB")
            if ended is not None and time.monotonic() > ended + _DRAIN_SECS:
                break
    process.wait(left())
    out, errors = (bytes(collected).decode(errors="replace") for collected in found)
    return out, errors
