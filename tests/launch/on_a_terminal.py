"""Runs `python -m launch` on a terminal of its own, types there, and reads what it shows."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Sequence

from tests.launch.launcher import ROOT, Launcher

_DEADLINE_SECS = 120


class Terminal:
    """A command of the launcher in the foreground of its own terminal.

    Args:
      launcher: gives the environment.
      words: the words of the command after `python -m launch`.
    """

    def __init__(self, launcher: Launcher, words: Sequence[str]) -> None:
        self._fd, inside = pty.openpty()
        env = {name: value for name, value in launcher.env.items() if name != "CI"}

        def take_it() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [sys.executable, "-m", "launch", *words],
            cwd=ROOT,
            env={**env, "TERM": "xterm"},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            preexec_fn=take_it,
        )
        os.close(inside)
        self.shown = ""

    def type(self, keys: str) -> None:
        """Types on the keyboard; `\\x03` is Ctrl-C."""
        os.write(self._fd, keys.encode())

    def wait_for(self, words: str) -> None:
        """Reads until the terminal has shown `words` since the last call."""
        deadline = time.monotonic() + _DEADLINE_SECS
        while words not in self.shown:
            assert time.monotonic() < deadline, f"no {words!r} in {self.shown!r}"
            assert self._read() or words in self.shown, f"no {words!r} in {self.shown!r}"
        self.shown = self.shown.partition(words)[2]

    @property
    def last_line(self) -> str:
        """The last line that was shown, without the codes that control the terminal."""
        return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self.shown).splitlines()[-1]

    def end(self) -> int:
        """Reads until the command has ended; returns its exit code."""
        deadline = time.monotonic() + _DEADLINE_SECS
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(60)

    def hang_up(self) -> None:
        """Closes the terminal, which sends SIGHUP to the command."""
        os.close(self._fd)
        self._fd = -1

    def close(self) -> None:
        """Kills the command if it still runs, and closes the terminal."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        if self._fd >= 0:
            self.hang_up()

    def _read(self) -> bool:
        """Reads what is there; returns False at the end."""
        if select.select([self._fd], [], [], 0.2)[0]:
            data = b""
            with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it
                data = os.read(self._fd, 1 << 16)
            self.shown += data.decode(errors="replace")
            return bool(data)
        return True
