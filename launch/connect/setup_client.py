"""Runs the program that prepares a host (`launch.agent.host_setup`), and sends it orders."""

import importlib.resources
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from launch.cluster.model import Host
from launch.connect import child
from launch.connect.bootstrap import FIRST
from launch.connect.inbox import Inbox
from launch.connect.setup_events import Event, read_event
from launch.connect.transport import OPEN_SECS, Transport
from launch.errors import HostError

SILENCE_SECS = 60.0  # the host beats every 5 s
_BEAT_SECS = 5.0
_CLOSE_SECS = 3.0
_CHUNK = 1 << 20
_LONGEST = 1 << 20  # characters of a line, such as the answer about all files
_LAST_WORDS = 4000  # characters of standard error that are kept
_UNREAD = 100  # events; when there are more, the host waits
_PROGRAM = "launch-setup"
_VERSION_CHECK = b"""\
import sys
if sys.version_info < (3, 9):
    sys.exit("setup needs Python 3.9 or newer, here is " + sys.version.split()[0])
"""


class StepError(HostError):
    """A step failed on the host.

    Attributes:
      last: the last lines of the program that failed there.
    """

    def __init__(self, reason: str, last: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.last = last


class SetupClient:
    """The connection to one host's program.

    Args:
      transport: how the launcher reaches the host.
      host: the host.
      hear: a function that is called with each `progress` event, in the thread that asks.

    Raises:
      HostError: the connection could not be started.
    """

    def __init__(self, transport: Transport, host: Host, hear: Callable[[Event], None]) -> None:
        self._transport, self._host, self._hear = transport, host, hear
        self._events: Inbox[Optional[Event]] = Inbox(_UNREAD)
        self._heard = time.monotonic()
        self._errors = ""
        self._is_closed = threading.Event()
        self._writing = threading.Lock()
        self._is_silent = False
        python = host.agent_python
        words = [python, "-I", "-S", "-c", FIRST, _PROGRAM]
        line = f"exec {python} -I -S -c '{FIRST}' {_PROGRAM}"
        # Ctrl-C does not reach it: `close` ends it in order.
        self._process = child.start(transport.command(host, words, line))
        self._draining = threading.Thread(target=self._drain, daemon=True)
        self._draining.start()
        for work in (self._read, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def open(self) -> None:
        """Starts the program; HostError if the host does not answer."""
        source = importlib.resources.files("launch.agent").joinpath("host_setup.py").read_bytes()
        source = _VERSION_CHECK + source
        self._write(b"%d\n%s" % (len(source), source))
        threading.Thread(target=self._beat, daemon=True).start()
        if self._next(OPEN_SECS).kind != "hello":
            raise HostError("its program did not greet")

    def is_busy(self) -> bool:
        """Returns whether a host that could not be reached only had too much to do."""
        code = self._process.poll()
        return code is not None and self._transport.is_busy(self._host, code, self._errors.strip())

    def ask(self, do: str, **order: Any) -> Event:
        """Sends an order; returns the answer, which has no limit of time while the host lives.

        Raises:
          StepError: the step failed.
          HostError: the connection ended, or the host was silent.
        """
        self._send("order", json.dumps({"do": do, **order}).encode())
        while True:
            event = self._next(None)
            if event.kind == "progress":
                self._hear(event)
            elif event.kind == "failed":
                raise StepError(event.reason, event.last)
            else:
                return event

    def write(self, source: Path, folder: str, path: str, digest: str) -> None:
        """Sends a file, without waiting for an answer.

        Args:
          source: the file here.
          folder: a folder there, absolute or relative to the working directory.
          path: the file's path in that folder.
          digest: the file's SHA-256.
        """
        status = source.stat()
        order: dict[str, Any] = {"do": "write", "folder": folder, "path": path, "digest": digest}
        order |= {"size": status.st_size, "mode": status.st_mode & 0o755 | 0o600}
        self._send("order", json.dumps(order).encode())
        left = status.st_size
        with source.open("rb") as file:
            while left > 0:
                data = file.read(min(_CHUNK, left))
                # A file that became shorter is filled up; the host then refuses it.
                data = data or bytes(min(_CHUNK, left))
                left -= len(data)
                self._send("data", data)

    def close(self) -> None:
        """Ends the program there, with all that it runs, and the connection."""
        self._is_closed.set()
        self._events.close()
        # The end of standard input is the signal; a host that does not see it sees ssh's end.
        threading.Thread(target=self._close_input, daemon=True).start()
        try:
            self._process.wait(_CLOSE_SECS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                return

    def _send(self, kind: str, payload: bytes) -> None:
        self._write(f"{kind} {len(payload)}\n".encode() + payload)

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            with self._writing:
                self._process.stdin.write(data)
                self._process.stdin.flush()
        except (OSError, ValueError):
            while True:  # until an event says more than the broken pipe, or the connection's end
                event = self._next(_CLOSE_SECS)
                if event.kind == "failed":
                    raise StepError(event.reason, event.last) from None

    def _next(self, timeout_secs: Optional[float]) -> Event:
        try:
            event = self._events.get(timeout=timeout_secs)
        except queue.Empty:
            raise HostError(f"no answer within {timeout_secs:g} s") from None
        if event is None:
            raise HostError(self._why())
        return event

    def _why(self) -> str:
        if self._is_silent:
            return f"no message for {SILENCE_SECS:g} s: is it up, and is the network?"
        try:
            code = self._process.wait(_CLOSE_SECS)
        except subprocess.TimeoutExpired:
            code = 0
        self._draining.join(_CLOSE_SECS)  # standard error says why, perhaps after the end
        return self._transport.explain(self._host, code, self._errors.strip())

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for raw in iter(lambda: stream.readline(_LONGEST), b""):
                self._heard = time.monotonic()
                event = read_event(raw)
                if event is not None and event.kind != "beat":
                    self._events.put(event)
        self._process.wait()
        self._events.put(None)

    def _drain(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while data := os.read(stream.fileno(), _CHUNK):
                self._errors = (self._errors + data.decode(errors="replace"))[-_LAST_WORDS:]

    def _beat(self) -> None:
        """Says that this launcher lives; a file that is being sent says it, too."""
        while not self._is_closed.wait(_BEAT_SECS):
            if self._process.stdin is not None and self._writing.acquire(blocking=False):
                try:
                    self._process.stdin.write(b"beat 0\n")
                    self._process.stdin.flush()
                except (OSError, ValueError):
                    return
                finally:
                    self._writing.release()

    def _watch(self) -> None:
        """Ends a connection whose host is silent."""
        while not self._is_closed.wait(_BEAT_SECS):
            if time.monotonic() > self._heard + SILENCE_SECS:
                self._is_silent = True
                self._process.kill()
                return
