"""Shows a running job: a live table on a terminal, prefixed lines elsewhere.

The job must never wait for its output: everything goes into a bounded queue, and one thread writes
whole lines. If the terminal does not take them, lines are missing on the screen, and nowhere else.
"""

import io
import os
import queue
import sys
import threading
from collections.abc import Sequence
from typing import Optional, TextIO, cast

from launch.screen.row import Item, Row

_BACKLOG = 10_000  # lines that wait for a reader
_CLOSE_SECS = 2.0
_CONTROL = dict.fromkeys([*range(9), *range(10, 32), 127])  # all but the tab


class Display:
    """Shows lines and the table of tasks; every method returns at once.

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
        """Shows a line of a task's output, unless there is a table, which has the last one."""
        if not self.live:
            self.note(f"[{task} {host}] {line}")

    def note(self, text: str) -> None:
        """Shows a line of the launcher's own."""
        if self._queue.qsize() >= _BACKLOG:
            self._dropped += 1
            return
        if self._dropped:
            self._queue.put(f"[{self._dropped:,} lines not shown; they are in the logs]")
            self._dropped = 0
        self._queue.put(text.translate(_CONTROL))

    def table(self, rows: Sequence[Row]) -> None:
        """Shows the state of every task, if there is a table."""
        if self.live and self._queue.qsize() < 2:
            self._queue.put(rows)

    def close(self) -> None:
        """Writes what is left; gives up after two seconds."""
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
        except (OSError, ValueError):  # nobody reads any more, which is no reason to end a job
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
    """Writes to a file descriptor at once.

    A thread that hangs in a stream's buffer holds the buffer's lock, with which the interpreter
    aborts at exit; here it hangs in a system call.
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
    except (OSError, ValueError):  # a stream in memory; or a closed one, which says so itself
        return stream


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
