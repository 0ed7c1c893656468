"""Runs kubectl as a child process whose output is read item by item, with limits in size."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Optional

from launch.agent.processes import die_with
from launch.backends.kubernetes.kubectl import UnreadableError, mapping, parsed, text
from launch.errors import HostError

LONGEST_PART = 1 << 14  # bytes of a line; a longer one is split into parts
_LONGEST_EVENT = 1 << 22  # bytes; Kubernetes keeps no larger objects
_LAST_WORDS = 4000  # bytes of kubectl's standard error

Split = Callable[[Iterator[bytes]], Iterator[Any]]


class Stream:
    """A running kubectl, whose output a thread passes on item by item.

    Args:
      command: the command line.
      split: a function that makes items of the parts of lines of kubectl's standard output.
      hear: a function that the thread calls with this stream and each item, and with None at the
        end of the output. It may wait; it must return when the stream is closed.

    Attributes:
      closed: whether `close` was called.
      has_items: whether there was an item.
    """

    def __init__(
        self, command: list[str], split: Split, hear: "Callable[[Stream, Any], None]"
    ) -> None:
        launcher = os.getpid()
        self.closed = self.has_items = False
        self._hear = hear
        self._unreadable = ""
        self._errors: Optional[IO[bytes]] = None
        self._process: Optional[subprocess.Popen[bytes]] = None
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                preexec_fn=lambda: die_with(launcher),
            )
        except OSError as error:  # such as too many open files, which may pass
            self._unreadable = f"kubectl could not be started: {error.strerror}"
        self._thread = threading.Thread(target=self._read, args=(split,), daemon=True)
        self._thread.start()

    @property
    def unreadable(self) -> str:
        """Why the stream has ended, if not as kubectl's output does; "" otherwise."""
        return self._unreadable

    @property
    def code(self) -> Optional[int]:
        """The exit code of kubectl; None before its end, and if it could not be started."""
        return None if self._process is None else self._process.poll()

    def last_words(self) -> str:
        """Returns the end of kubectl's standard error, at most 4,000 bytes."""
        if self._errors is None:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _LAST_WORDS))
        return self._errors.read(_LAST_WORDS).decode(errors="replace")

    def close(self) -> None:
        """Kills kubectl, and waits for its end."""
        self.closed = True
        self._end()
        self._thread.join(5)
        if self._errors is not None:
            self._errors.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _read(self, split: Split) -> None:
        if self._process is None or self._process.stdout is None:
            self._hear(self, None)
            return
        output = self._process.stdout
        try:
            with output:
                for item in split(iter(lambda: output.readline(LONGEST_PART), b"")):
                    self.has_items = True
                    self._hear(self, item)
        except HostError as error:
            self._unreadable = str(error)
            self._end()
        finally:
            self._process.wait()
            self._hear(self, None)


@dataclass(frozen=True)
class LogPart:
    """A line of a log, or a part of a long one.

    Attributes:
      stamp: the line's timestamp, in its first part; "" in later parts.
      text: the text, without timestamp and line end.
      is_first: whether this is the first part of its line.
      is_cut: whether the output ended here, within a line.
    """

    stamp: str
    text: bytes
    is_first: bool = True
    is_cut: bool = False


def stamped_lines(parts: Iterator[bytes]) -> Iterator[LogPart]:
    """Yields the lines of `kubectl logs --timestamps`, in parts of at most `LONGEST_PART` bytes."""
    is_first = True
    for part in parts:
        ends = part.endswith(b"\n")
        stamp, _, rest = part.partition(b" ") if is_first else (b"", b"", part)
        is_cut = not ends and len(part) < LONGEST_PART
        yield LogPart(
            stamp.strip().decode(errors="replace"), rest.rstrip(b"\r\n"), is_first, is_cut
        )
        is_first = ends


def watch_events(parts: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (event type, object) for each event of `kubectl get --output-watch-events -o json`.

    Event types are ADDED, MODIFIED and DELETED.

    Raises:
      UnreadableError: an event is no JSON object, or larger than any object of the API.
    """
    block: list[bytes] = []
    size, starts_line = 0, True
    for part in parts:
        block.append(part)
        size += len(part)
        if size > _LONGEST_EVENT:
            raise UnreadableError(f"kubectl get --watch printed more than {_LONGEST_EVENT:,} bytes")
        # An event is one line, or indented JSON, depending on kubectl's version.
        ends = part.endswith(b"\n")
        is_compact = block[0].strip() != b"{"
        if ends and (is_compact or (starts_line and part == b"}\n")):
            found = b"".join(block)
            block, size = [], 0
            if found.strip():
                yield _event(found)
        starts_line = ends


def _event(found: bytes) -> tuple[str, dict[str, Any]]:
    event = parsed(found, "kubectl get --watch")
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        shown = found[:60].decode(errors="replace")
        raise UnreadableError(f"kubectl get --watch printed {shown!r}, which is no event")
    return text(event, "type"), mapping(event, "object")
