"""Runs a program on a pseudo-terminal, and draws what it writes with a terminal emulator (pyte)."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

import pyte

from testbeds.errors import TestbedError

_SCROLLBACK = 100_000  # lines above the screen
_READ_SECS = 0.1
_LAST_LINES = 40  # how many an error message quotes


def take_terminal() -> None:
    """Makes standard input the terminal whose Ctrl-C reaches this process.

    As in a shell, the program is one of the foreground, though the tests may be in the background.
    """
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_DFL)


class Terminal:
    """A program and its terminal.

    Args:
      command: the program and its arguments.
      columns: the terminal's width.
      lines: the terminal's height.
      env: variables that are added to this process's environment; None as a value removes one.
      cwd: the program's working folder.

    Attributes:
      frames: the different screens that were seen, as tuples of lines.
      raw: all bytes that the program wrote.
    """

    def __init__(
        self,
        command: Sequence[str],
        columns: int,
        lines: int = 24,
        env: Optional[Mapping[str, Optional[str]]] = None,
        cwd: Optional[Path] = None,
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=_SCROLLBACK)
        self._stream = pyte.ByteStream(self.screen)
        self.frames: list[tuple[str, ...]] = []
        self.raw = b""
        self._num_seen = 0  # bytes of `raw` up to which `wait_for_new` has looked
        self._is_open = True
        plain = {"TERM": "xterm-256color", "CI": None, "NO_COLOR": None, "COLUMNS": None}
        changes = {**plain, "FORCE_COLOR": None, "LINES": None, **(env or {})}
        kept = {name: value for name, value in os.environ.items() if name not in changes}
        given = {name: value for name, value in changes.items() if value is not None}
        self._main, end = pty.openpty()
        self._set_size(columns, lines)
        try:
            self.process = subprocess.Popen(
                command,
                stdin=end,
                stdout=end,
                stderr=end,
                env={**kept, **given},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=take_terminal,
            )
        finally:
            os.close(end)

    @property
    def shown(self) -> list[str]:
        """The lines on the screen, without trailing spaces and empty lines at the end."""
        return _trimmed(self.screen.display)

    @property
    def all_lines(self) -> list[str]:
        """The lines above the screen and those on it, as somebody who scrolls back reads them."""
        above = [
            "".join(line[column].data for column in range(self.screen.columns))
            for line in self.screen.history.top
        ]
        return _trimmed([*above, *self.screen.display])

    def type(self, keys: str) -> None:
        """Types keys, of which chr(3) is Ctrl-C."""
        os.write(self._main, keys.encode())

    def resize(self, columns: int, lines: int = 24) -> None:
        """Gives the terminal another size."""
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)

    def wait_for(self, condition: Callable[[], object], what: str, secs: float = 60) -> None:
        """Reads until a condition holds.

        Raises:
          TestbedError: it did not hold in time, or before the program ended.
        """
        deadline = time.monotonic() + secs
        while not condition():
            if not self._is_open or time.monotonic() > deadline:
                why = f"not within {secs:g} s" if self._is_open else "the program has ended"
                last = "\n".join(self.all_lines[-_LAST_LINES:])
                raise TestbedError(f"no {what}: {why}\n{last}")
            self._read()

    def wait_for_words(self, words: str, secs: float = 60) -> None:
        """Reads until the screen shows `words` in one line."""
        self.wait_for(lambda: any(words in line for line in self.shown), repr(words), secs)

    def wait_for_new(self, words: str, secs: float = 120) -> None:
        """Reads until the program has written `words` since the last call found its own."""
        found = words.encode()
        self.wait_for(lambda: found in self.raw[self._num_seen :], repr(words), secs)
        self._num_seen = self.raw.index(found, self._num_seen) + len(found)

    def finish(self, secs: float = 120) -> int:
        """Reads to the end, and returns the program's exit code."""
        self.wait_for(lambda: not self._is_open, "end", secs)
        return self.process.wait(secs)

    def hang_up(self) -> None:
        """Closes the terminal, which sends SIGHUP to the program."""
        os.close(self._main)
        self._main = -1

    def close(self) -> None:
        """Kills the program if it still runs, and closes the terminal; may be called twice."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self._main >= 0:
            self.hang_up()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _read(self) -> None:
        waiting = select.poll()  # select() takes no descriptor from 1,024 on.
        waiting.register(self._main, select.POLLIN)
        if not waiting.poll(_READ_SECS * 1000):
            return
        try:
            chunk = os.read(self._main, 65536)
        except OSError:  # EIO: the last process that had the terminal open has closed it.
            chunk = b""
        self._is_open = bool(chunk)
        self.raw += chunk
        self._stream.feed(chunk)
        frame = tuple(line.rstrip() for line in self.screen.display)
        if not self.frames or self.frames[-1] != frame:
            self.frames.append(frame)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def _trimmed(lines: Sequence[str]) -> list[str]:
    found = [line.rstrip() for line in lines]
    while found and not found[-1]:
        found.pop()
    return found
