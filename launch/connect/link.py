"""A connection to an agent: a child process, with one thread that reads and one that writes."""

import contextlib
import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Optional

from launch.agent.protocol import MAGIC, Message, encode
from launch.connect import bootstrap
from launch.errors import HostError

_LONGEST = 1 << 24  # bytes of a message; an agent sends at most a few hundred kilobytes at once
# event -> the types of the fields that the launcher uses.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "lines": {"task": (str,), "lines": (list,), "dropped": (int,)},
    "started": {"task": (str,)},
    "exit": {
        "task": (str,),
        "stragglers": (int,),
        "code": (int, type(None)),
        "reason": (str,),
        "signals": (list,),
    },
    "orphaned": {"by_platform": (bool,), "reason": (str,)},
    "note": {"text": (str,)},
    "told": {"reason": (str,)},
    "ports": {"ports": (list,)},
}
_LAST_WORDS = 4000  # bytes of standard error that a message may hold


class Link:
    """A connection to a host's agent.

    Args:
      command: the command that starts the agent, through ssh for another host.
      explain: a function of (exit code, standard error) that returns why the connection ended, and
        the way out.
      hear: a function that the reading thread calls with this link and each message; the last
        message is `{"event": "lost"}`.

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
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._threads: list[threading.Thread] = []
        # `close` may run while another thread runs `open`: it must find either the process with
        # both of its threads, or no process.
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
        try:
            # In a session of its own, Ctrl-C does not reach the process, and ssh has no terminal
            # on which to ask for a password.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"{self._command[0]}: {error.strerror}; is it installed?") from None
        self._to_write.put(bootstrap.payload())
        for work, stream in (
            (self._read, self._process.stdout),
            (self._write, self._process.stdin),
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
        try:
            end = self._errors.seek(0, 2)
            self._errors.seek(max(0, end - _LAST_WORDS))
            errors = self._errors.read().decode(errors="replace").strip()
        except ValueError:  # another thread has closed the file, and nobody needs the answer
            errors = ""
        return self._explain(code, errors)

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
        for thread in self._threads:
            thread.join(5)
        self._errors.close()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in iter(lambda: stream.readline(_LONGEST), b""):
                if line.endswith(MAGIC):  # a login shell's text without a newline may precede it
                    break
            for line in iter(lambda: stream.readline(_LONGEST), b""):
                self.heard = time.monotonic()
                message = _message(line)
                if message is None:
                    if line.endswith(b"\n") or len(line) == _LONGEST:
                        self._wrong = f"it sent what is no message of an agent: {line[:60]!r}"
                    break
                self._hear(self, message)
                self._ready = True
                self._greeted.set()  # the first message is `hello`
        self._hear(self, {"event": "lost"})
        self._greeted.set()

    def _write(self, stream: IO[bytes]) -> None:
        # `_read` reports the end of the connection.
        with contextlib.suppress(OSError), stream:
            while (data := self._to_write.get()) is not None:
                stream.write(data)
                stream.flush()


def _message(line: bytes) -> Optional[Message]:
    """Returns the message of a line; None if it is not one that an agent sends."""
    try:
        message = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("event"), str):
        return None
    fields = _FIELDS.get(message["event"], {})
    if any(n not in message or not isinstance(message[n], kinds) for n, kinds in fields.items()):
        return None
    texts = message["lines"] if message["event"] == "lines" else []
    return message if all(isinstance(text, str) for text in texts) else None
