"""Shows a running job: lines with a prefix, and on a terminal a live table below them.

The job must never wait for its output: everything goes into a bounded queue, and one thread writes
whole lines. If the reader is too slow, lines are missing on the screen, but not in the logs.
"""

import contextlib
import io
import math
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Sequence
from typing import Optional, TextIO, cast

from launch.screen.job_line import count_states, duration, is_progress
from launch.screen.plain import plain
from launch.screen.row import LEADS, Item, Row

_BACKLOG = 10_000  # the longest queue of lines that are not written yet
_LONGEST = 8192  # characters of a line
_CLOSE_SECS = 2.0
_MOST_AT_START = 20  # lines of the lead before its first step
_STARTING_SECS = 15.0  # after which a start without a table is mentioned; then after twice as long


class Display:
    """Shows lines and the table of tasks; no method waits for the stream, except `close`.

    Args:
      stream: the stream to write to; by default standard output.
      live: whether to redraw a table in place; by default on terminals.
      mentions_start: whether lines say how long a start lasts; a live table always does.
      began: when the job began (`time.time`), in seconds; None: now.
    """

    def __init__(
        self,
        stream: Optional[TextIO] = None,
        live: Optional[bool] = None,
        mentions_start: bool = True,
        began: Optional[float] = None,
    ) -> None:
        stream = sys.stdout if stream is None else stream
        self.live = _is_terminal(stream) if live is None else live
        self._stream = _past_the_buffer(stream)
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._start: Optional[list[str]] = []  # what the lead has said before its first step
        self._dropped = 0
        self._closed = False
        self._since = time.monotonic() - (0 if began is None else max(time.time() - began, 0))
        self._next_mention = _STARTING_SECS if mentions_start else math.inf
        self._thread = threading.Thread(target=self._write_all, name="display", daemon=True)
        self._thread.start()

    def task_line(self, task: str, host: str, line: str) -> None:
        """Shows a line of a task's output.

        Above a live table there are only lines of the lead: not its progress, and not what it says
        while it starts, which the table shows, unless it says much or ends without a step.
        """
        text = f"[{task} {host}] {line}"
        if not self.live:
            self.note(text)
        elif not task.startswith(LEADS):
            return
        elif is_progress(line):
            self._start = None
        elif self._start is None:
            self.note(text)
        else:
            self._start.append(text)
            if len(self._start) > _MOST_AT_START:
                self._show_start()

    def _show_start(self) -> None:
        for text in self._start or ():
            self.note(text)
        self._start = None

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
        """Redraws the table if live.

        Without a live table, says from time to time that no task has taken a training step yet.
        """
        if self.live:
            if self._start is not None and any(row.step for row in rows):
                self._show_start()  # The job was training already when this display was opened.
            if self._queue.qsize() < _BACKLOG:
                self._queue.put(rows)
        elif any(row.step for row in rows):
            self._next_mention = math.inf
        elif (secs := time.monotonic() - self._since) >= self._next_mention:
            self._next_mention = 2 * secs
            self.note(f"{duration(secs)} elapsed, no training step yet: {count_states(rows)}")

    def close(self) -> None:
        """Waits until everything is written, for at most two seconds."""
        if not self._closed:
            self._closed = True
            self._show_start()
            self._queue.put(None)
            self._thread.join(_CLOSE_SECS)

    def _write_all(self) -> None:
        try:
            if self.live:
                from launch.screen.live import show_live

                show_live(self._stream, self._queue, self._since)
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
        with contextlib.suppress(BlockingIOError):
            stream.flush()
        self._fd = os.dup(stream.fileno())
        self._terminal = stream.isatty()

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # another program has made what it shares non-blocking
                room = select.poll()  # select() takes no descriptor from 1,024 on.
                room.register(self._fd, select.POLLOUT)
                room.poll()
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
