"""Messages between launcher and agent: one JSON object per line, in both directions."""

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Optional

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


Fits = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _seconds(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) < 1e12 and math.isfinite(value)


def _whole(low: int, high: int) -> Fits:
    return lambda value: type(value) is int and low <= value <= high


def _maybe(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _tuple_of(*fits: Fits) -> Fits:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(fits)
        and all(one(part) for one, part in zip(fits, value))
    )


def _texts_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_text, value.values()))


def _containers(value: Any) -> bool:
    """Returns whether a value holds the arguments of `launch.agent.containers.Containers`."""
    mounts = _list_of(_tuple_of(_text, _text, _flag))
    return (
        isinstance(value, dict)
        and value.keys() == {"engine", "mounts"}
        and _text(value["engine"])
        and mounts(value["mounts"])
    )


_count = _whole(0, 1 << 53)
_port = _whole(1, 65_535)
_share = _tuple_of(_whole(0, 1 << 20), _whole(1, 1 << 20))

# What an agent reports: event -> its fields.
EVENTS: Mapping[str, Mapping[str, Fits]] = {
    "hello": {},
    "beat": {},
    "ports": {"ports": _list_of(_port)},
    "started": {"task": _text},
    "lines": {"task": _text, "lines": _list_of(_text), "dropped": _count},
    "exit": {
        "task": _text,
        "code": _maybe(_whole(-64, 255)),
        "reason": _text,
        "stragglers": _count,
        "signals": _list_of(_whole(1, 64)),
        "port_taken": _flag,
    },
    "note": {"text": _text},
    "told": {"reason": _text},
    "orphaned": {"reason": _text, "by_platform": _flag},
    "swept": {"pids": _list_of(_count), "containers": _list_of(_text), "error": _maybe(_text)},
    "looked": {
        "clock": _seconds,
        "has_workdir": _flag,
        "python": _maybe(_text),
        "tensorflow": _maybe(_text),
        "python_error": _maybe(_text),
        "code": _maybe(_text),
        "engine_error": _maybe(_text),
        "image": _maybe(_text),
        "data": _maybe(_text),
        "ports": _list_of(_tuple_of(_port, _maybe(_text))),
        "public": _list_of(_text),
        "gpus": _list_of(_text),
        "disk_free": _count,
    },
    "listening": {},
    "dialled": {"failures": _list_of(_tuple_of(_text, _port, _text))},
}

# What the launcher orders: what to do -> the fields of the order.
ORDERS: Mapping[str, Mapping[str, Fits]] = {
    "setup": {
        "mark": _text,
        "lease_secs": _seconds,
        "stop_secs": _seconds,
        "alone": _flag,
        "successor": _flag,
        "containers": _maybe(_containers),
        "logs": _maybe(_text),
    },
    "start": {
        "task": _text,
        "argv": _list_of(_text),
        "script": _maybe(_text),
        "cwd": _text,
        "env": _texts_by_name,
        "masked": _list_of(_text),
        "gpus": _maybe(_list_of(_count)),
        "share": _maybe(_share),
        "port": _maybe(_port),
        "log": _text,
        "last": _flag,
    },
    "signal": {"task": _text, "signal": _whole(1, 64)},
    "beat": {},
    "ports": {"count": _whole(0, 65_535)},
    "sweep": {"run": _text, "engine": _maybe(_text), "patience_secs": _seconds},
    "look": {
        "cwd": _text,
        "python": _maybe(_text),
        "code": _list_of(_text),
        "engine": _maybe(_text),
        "image": _maybe(_text),
        "data": _maybe(_text),
        "ports": _list_of(_port),
    },
    "listen": {"ports": _list_of(_port), "token": _text},
    "dial": {"targets": _list_of(_tuple_of(_text, _port, _text))},
    "end": {},
}


def read_event(line: bytes) -> Optional[Message]:
    """Returns an agent's message, its texts shortened; None if the line holds none."""
    message = _read(line, "event", EVENTS)
    if message is None:
        return None
    return {name: shown(value) for name, value in message.items()}


def read_order(line: bytes) -> Optional[Message]:
    """Returns the launcher's message; None if the line holds none."""
    return _read(line, "do", ORDERS)


def _read(line: bytes, key: str, table: Mapping[str, Mapping[str, Fits]]) -> Optional[Message]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get(key), str):
        return None
    fields = table.get(message[key])
    if fields is None or any(n not in message or not fit(message[n]) for n, fit in fields.items()):
        return None
    return {key: message[key], **{name: message[name] for name in fields}}


def shown(value: Any) -> Any:
    """Shortens texts, and replaces halves of characters, which no file or terminal can take."""
    if isinstance(value, list):
        return [shown(part) for part in value]
    return value[:SHOWN].encode(errors="replace").decode() if isinstance(value, str) else value
