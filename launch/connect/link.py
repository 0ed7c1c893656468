"""A connection to an agent: a child process, and threads that read and write."""

import contextlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Optional

from launch.agent.messages import read_event
from launch.agent.protocol import MAGIC, Message, encode
from launch.connect import bootstrap, child
from launch.errors import HostError

_LONGEST = 1 << 20  # bytes of a message; an agent's longest ones have a task's lines
_MOST_BEFORE = 1 << 20  # bytes that a login shell may print before the agent's greeting
_CHUNK = 1 << 16
_DRAIN_SECS = 0.5  # until standard error ends; a process in the background may hold it open
_LAST_WORDS = 4000  # bytes of standard error that are kept


class Link:
    """A connection to a host's agent.

    Args:
      command: the command that starts the agent, through ssh for another host.
      explain: a function of (exit code, standard error) that returns why the connection ended, and
        the way out.
      hear: a function that the reading thread calls with this link and each message except
        heartbeats; the last message is `{"event": "lost"}`.

    Attributes:
      heard: the time of the last message, by time.monotonic.
    """

    def __init__(
        self,
        command: Sequence[str],
        explain: Callable[[int, str], str],
        hear: "Callable[[Link, Message], None]",
    ) -> None:
        self.heard = time.monotonic()
        self._command = list(command)
        self._explain = explain
        self._hear = hear
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
        """Starts the agent and waits for its first message.

        Args:
          timeout_secs: the seconds to wait.

        Raises:
          HostError: the agent could not be started, or sent no message in time; the message says
            why.
        """
        with self._starting:
            self._start()
        in_time = self._greeted.wait(timeout_secs)
        if not self._ready:
            if in_time:
                raise HostError(self.why())
            self.close(0)
            raise HostError(f"no answer within {timeout_secs:g} s")

    def _start(self) -> None:
        self._process = child.start(self._command)
        self._to_write.put(bootstrap.payload())
        for work, stream in (
            (self._read, self._process.stdout),
            (self._write, self._process.stdin),
            (self._drain, self._process.stderr),
        ):
            self._threads.append(threading.Thread(target=work, args=(stream,), daemon=True))
            self._threads[-1].start()

    def send(self, message: Message) -> None:
        """Queues a message; never waits for the host to read it."""
        self._to_write.put(encode(message))

    def why(self) -> str:
        """Returns why the connection ended, by the process's exit code and standard error."""
        if self._process is None:
            return "it was never started"
        if self._wrong:
            return self._wrong
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = 0
        self._threads[-1].join(_DRAIN_SECS)
        return self._explain(code, self._last_words.decode(errors="replace").strip())

    def close(self, patience_secs: float) -> None:
        """Writes what is queued, closes standard input, and kills the process if it stays.

        Args:
          patience_secs: the seconds that the process has to end before it is killed.
        """
        self._to_write.put(None)
        with self._starting:
            if self._process is None:
                return
        try:
            self._process.wait(patience_secs)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        *others, draining = self._threads
        for thread in others:
            thread.join(5)
        draining.join(_DRAIN_SECS)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            if self._finds_greeting(stream):
                self._read_messages(stream)
        self._hear(self, {"event": "lost"})
        self._greeted.set()

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
