"""Messages between launcher and agent: one JSON object per line, in both directions."""

import json
import os
from typing import Any

MAGIC = b"launch-agent 1\n"  # a login shell may print other text before this line

SHOWN = 4096  # characters of a text, and of a task's line, that the launcher shows

Message = dict[str, Any]

_BACKLOG = 1 << 20  # bytes queued for a slow launcher; beyond that, droppable messages are dropped
_CHUNK = 1 << 16
_LONGEST = 1 << 24  # bytes of a message to the agent; the longest name all tasks


def encode(message: Message) -> bytes:
    """Returns a message as one line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Incoming:
    """Reads lines, of a message each, from a nonblocking file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._partial = bytearray()

    def read(self) -> list[bytes]:
        """Returns the lines that have arrived.

        Raises:
          EOFError: the other side has closed the connection.
          ValueError: a line is longer than any message.
        """
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            raise EOFError
        self._partial += data
        if len(self._partial) > _LONGEST + _CHUNK:
            raise ValueError(f"a line of more than {_LONGEST:,} bytes")
        if b"\n" not in data:
            return []
        *lines, rest = bytes(self._partial).split(b"\n")
        self._partial = bytearray(rest)
        return lines


class Outgoing:
    """Queues messages and writes them to a file descriptor without blocking.

    Args:
      fd: the file descriptor.
      greeting: the bytes to write before the first message.
    """

    def __init__(self, fd: int, greeting: bytes = b"") -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._pending = bytearray(greeting)
        self._broken = False

    def put(self, message: Message, *, droppable: bool = False) -> bool:
        """Queues a message; returns False if it was dropped because the reader is slow or gone."""
        if self._broken or (droppable and len(self._pending) > _BACKLOG):
            return False
        self._pending += encode(message)
        self.flush()
        return True

    def flush(self) -> None:
        """Writes as much of the queue as possible without blocking."""
        while self._pending and not self._broken:
            try:
                del self._pending[: os.write(self._fd, self._pending[:_CHUNK])]
            except BlockingIOError:
                return
            except OSError:  # the reader has closed the connection
                self._broken = True

    @property
    def waiting(self) -> bool:
        """Whether bytes are still to be written."""
        return bool(self._pending) and not self._broken
