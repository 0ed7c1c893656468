"""Shows a running job: a live table on a terminal, and lines with a prefix elsewhere.

The job must never wait for its output: everything goes into a bounded queue, and one thread writes
whole lines. If the reader is too slow, lines are missing on the screen, but not in the logs.
"""

import io
import os
import queue
import sys
import threading
from collections.abc import Sequence
from typing import Optional, TextIO, cast

from launch.screen.plain import plain
from launch.screen.row import Item, Row

_BACKLOG = 10_000  # the longest queue of lines that are not written yet
_LONGEST = 8192  # characters of a line
_CLOSE_SECS = 2.0


class Display:
    """Shows lines and the table of tasks; no method waits for the stream, except `close`.

    Args:
      stream: the stream to write to; by default standard output.
      live: whether to redraw a table in place; by default on terminals.
    """

    def __init__(self, stream: Optional[TextIO] = None, live: Optional[bool] = None) -> None:
        stream = sys.stdout if stream is None else stream
        self.live = _is_terminal(stream) if live is None else live
        self._stream = _past_the_buffer(stream)
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._dropped = 0
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="display", daemon=True)
        self._thread.start()

    def task_line(self, task: str, host: str, line: str) -> None:
        """Shows a line of a task's output; does nothing if live, as the table has the last line."""
        if not self.live:
            self.note(f"[{task} {host}] {line}")

    def note(self, text: str) -> None:
        """Shows one line; drops it if too many lines are waiting."""
        if self._queue.qsize() >= _BACKLOG:
            self._dropped += 1
            return
        if self._dropped:
            self._queue.put(f"[{self._dropped:,} lines not shown; they are in the logs]")
            self._dropped = 0
        self._queue.put(plain(text[:_LONGEST]))

    def table(self, rows: Sequence[Row]) -> None:
        """Redraws the table if live; does nothing while earlier items are waiting."""
        if self.live and self._queue.qsize() < 2:
            self._queue.put(rows)

    def close(self) -> None:
        """Waits until everything is written, for at most two seconds."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join(_CLOSE_SECS)

    def _write_all(self) -> None:
        try:
            if self.live:
                from launch.screen.table import show_live

                show_live(self._stream, self._queue)
            else:
                self._write_lines()
        except (OSError, ValueError):  # The reader is gone, which must not end the job.
            return

    def _write_lines(self) -> None:
        open_ended = True
        while open_ended:
            items = [self._queue.get()]
            while not self._queue.empty() and len(items) < 1000:
                items.append(self._queue.get())
            open_ended = None not in items
            text = "".join(f"{item}\n" for item in items if isinstance(item, str))
            self._stream.write(text)
            self._stream.flush()


class _Direct(io.TextIOBase):
    """Writes to a file descriptor without a buffer.

    A thread that blocks in a buffered write holds the buffer's lock, which makes the interpreter
    abort at exit; this one blocks in a system call, without a lock.
    """

    def __init__(self, stream: TextIO) -> None:
        stream.flush()
        self._fd = os.dup(stream.fileno())
        self._terminal = stream.isatty()

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._fd, data) :]
        return len(text)

    def isatty(self) -> bool:
        return self._terminal

    def fileno(self) -> int:
        return self._fd


def _past_the_buffer(stream: TextIO) -> TextIO:
    try:
        return cast(TextIO, _Direct(stream))
    except (OSError, ValueError):  # in memory, or closed, which raises its own error later
        return stream


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
