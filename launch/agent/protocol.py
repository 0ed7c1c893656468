"""Messages between launcher and agent: one JSON object a line, in both directions."""

import json
import os
from typing import Any

MAGIC = b"launch-agent 1\n"  # before it, a login shell may have printed anything

Message = dict[str, Any]

_BACKLOG = 1 << 20  # bytes of output that wait for a slow launcher; later lines are dropped
_CHUNK = 1 << 16


def encode(message: Message) -> bytes:
    """A message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Incoming:
    """Splits what a file descriptor delivers into messages; never waits."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._partial = b""

    def read(self) -> list[Message]:
        """Returns the messages that have come in.

        Raises:
          EOFError: the other side has closed the connection.
        """
        try:
            data = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            raise EOFError
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Outgoing:
    """Writes messages to a file descriptor as far as the other side reads; never waits.

    Args:
      fd: the file descriptor.
      greeting: bytes to write before the first message.
    """

    def __init__(self, fd: int, greeting: bytes = b"") -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._pending = bytearray(greeting)
        self._broken = False

    def put(self, message: Message, *, droppable: bool = False) -> bool:
        """Queues a message; returns False if it was dropped because nobody reads."""
        if self._broken or (droppable and len(self._pending) > _BACKLOG):
            return False
        self._pending += encode(message)
        self.flush()
        return True

    def flush(self) -> None:
        """Writes as much as the other side takes now."""
        while self._pending and not self._broken:
            try:
                del self._pending[: os.write(self._fd, self._pending[:_CHUNK])]
            except BlockingIOError:
                return
            except OSError:  # nobody is left to read
                self._broken = True

    @property
    def waiting(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._pending) and not self._broken
