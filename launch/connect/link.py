"""A connection to an agent: a child process, and threads that read and write."""

import contextlib
import errno
import os
import queue
import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Optional, Union

from launch.agent.protocol import MAGIC, Message, encode, read_event
from launch.connect import bootstrap
from launch.errors import HostError

_LONGEST = 1 << 20  # bytes of a message; an agent's longest ones have a task's lines
_MOST_BEFORE = 1 << 20  # bytes that a login shell may print before the agent's greeting
_CHUNK = 1 << 16
_DRAIN_SECS = 0.5  # until standard error ends; a process in the background may hold it open
_LAST_WORDS = 4000  # bytes of standard error that are kept
_TRIES = 4
PAUSE_SECS = (0.5, 3.0)  # between two tries, by chance: other connections wait, too


class Link:
    """A connection to a host's agent.

    Args:
      command: the command that starts the agent, through ssh for another host.
      explain: a function of (exit code, standard error) that returns why the connection ended, and
        the way out.
      hear: a function that the reading thread calls with this link and each message except
        heartbeats; the last message is `{"event": "lost"}`.
      is_busy: a function of (exit code, standard error) that returns whether to try again, since
        the host only had too much to do for a connection.

    Attributes:
      heard: the time of the last message, by time.monotonic.
    """

    def __init__(
        self,
        command: Sequence[str],
        explain: Callable[[int, str], str],
        hear: "Callable[[Link, Message], None]",
        is_busy: Callable[[int, str], bool] = lambda code, errors: False,
    ) -> None:
        self.heard = time.monotonic()
        self._command = list(command)
        self._explain = explain
        self._hear = hear
        self._is_busy = is_busy
        self._closing = threading.Event()
        self._tries, self._tries_again = Tries(self._closing), False
        self._greeted = threading.Event()
        self._ready = False
        self._wrong = ""  # what the host has sent that is no message
        self._to_write: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        self._last_words = b""  # the end of standard error
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._threads: list[threading.Thread] = []
        # `close` may run while another thread runs `open`: it must find either the process with
        # all of its threads, or no process.
        self._starting = threading.Lock()

    def open(self, timeout_secs: float) -> None:
        """Starts the agent and waits for its first message; tries again if the host is busy.

        Args:
          timeout_secs: the seconds to wait at each try.

        Raises:
          HostError: the agent could not be started, or sent no message in time; the message says
            why.
        """
        with self._starting:
            self._start()
        while True:
            in_time = self._greeted.wait(timeout_secs)
            if self._ready:
                return
            if not in_time:
                self.close(0)
                raise HostError(f"no answer within {timeout_secs:g} s")
            if not self._tries_again:
                raise HostError(self.why())
            self._start_again()

    def _start_again(self) -> None:
        """Starts the agent again after a pause.

        Raises:
          HostError: the link is closed meanwhile, or the agent could not be started.
        """
        self._tries.again()
        try:
            with self._starting:
                if self._closing.is_set():
                    raise HostError(self.why())
                self._to_write.put(None)  # ends the thread that wrote to the last process
                self._to_write = queue.SimpleQueue()
                self._last_words = b""
                self._greeted.clear()
                self._start()
        except HostError:
            self._hear(self, {"event": "lost"})
            raise

    def _start(self) -> None:
        self._process = start(self._command)
        self._to_write.put(bootstrap.payload())
        # The reading thread may wait for the one that is started before it.
        self._threads = [
            threading.Thread(target=work, args=(stream,), daemon=True)
            for work, stream in (
                (self._drain, self._process.stderr),
                (self._read, self._process.stdout),
                (self._write, self._process.stdin),
            )
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Queues a message; never waits for the host to read it."""
        self._to_write.put(encode(message))

    def why(self) -> str:
        """Returns why the connection ended, by the process's exit code and standard error."""
        if self._process is None:
            return "it was never started"
        return self._wrong or self._explain(*self._end_of(self._process))

    def _end_of(self, process: "subprocess.Popen[bytes]") -> "tuple[int, str]":
        """Returns the exit code, and standard error."""
        try:
            code = process.wait(5)
        except subprocess.TimeoutExpired:
            code = 0
        self._threads[0].join(_DRAIN_SECS)
        return code, self._last_words.decode(errors="replace").strip()

    def close(self, patience_secs: float) -> None:
        """Writes what is queued, closes standard input, and kills the process if it stays.

        Args:
          patience_secs: the seconds that the process has to end before it is killed.
        """
        self._closing.set()
        with self._starting:
            self._to_write.put(None)
            if self._process is None:
                return
        try:
            self._process.wait(patience_secs)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        draining, *others = self._threads
        for thread in others:
            thread.join(5)
        draining.join(_DRAIN_SECS)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            if self._finds_greeting(stream):
                self._read_messages(stream)
        self._tries_again = self._may_try_again()
        if not self._tries_again:
            self._hear(self, {"event": "lost"})
        self._greeted.set()

    def _may_try_again(self) -> bool:
        """Returns whether `open` is to try again, now that the process has closed its output."""
        if self._ready or self._wrong or self._process is None or not self._tries.left:
            return False
        return self._is_busy(*self._end_of(self._process)) and not self._closing.is_set()

    def _finds_greeting(self, stream: IO[bytes]) -> bool:
        """Reads what a login shell prints, up to the greeting, which may follow other text."""
        begun, end, size = b"", b"", 0
        while line := stream.readline(_CHUNK):
            begun, end, size = begun or line, (end + line)[-len(MAGIC) :], size + len(line)
            if end == MAGIC:
                return True
            if size > _MOST_BEFORE:
                self._wrong = (
                    f"it printed more than {_MOST_BEFORE >> 20} MiB instead of starting an agent: "
                    f"{_quote(begun)}"
                )
                return False
        return False

    def _read_messages(self, stream: IO[bytes]) -> None:
        while line := stream.readline(_LONGEST):
            self.heard = time.monotonic()
            message = read_event(line) if line.endswith(b"\n") else None
            if message is None:
                if line.endswith(b"\n") or len(line) == _LONGEST:  # else its end was cut off
                    self._wrong = f"it sent what is no message of an agent: {_quote(line)}"
                return
            self._ready = True
            self._greeted.set()  # the first message is `hello`
            if message["event"] != "beat":  # `heard` has told of it
                self._hear(self, message)

    def _drain(self, stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), _CHUNK):
                self._last_words = (self._last_words + data)[-_LAST_WORDS:]

    def _write(self, stream: IO[bytes]) -> None:
        # `_read` reports the end of the connection.
        with contextlib.suppress(OSError), stream:
            while (data := self._to_write.get()) is not None:
                stream.write(data)
                stream.flush()


def _quote(data: bytes) -> str:
    return repr(data[:60])


class Tries:
    """The further tries of one connection to a host that had too much to do for it.

    Args:
      closing: an event that ends the pauses; after it, there is no further try.

    Attributes:
      left: the number of tries that are left.
    """

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self.left = _TRIES

    def again(self) -> bool:
        """Waits until the next try is due; returns False if there is none."""
        if not self.left:
            return False
        self.left -= 1
        return not self._closing.wait(random.uniform(*PAUSE_SECS))


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
