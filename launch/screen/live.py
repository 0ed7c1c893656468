"""The live table: drawn below the lines of the tasks, by the display's own thread."""

import atexit
import contextlib
import functools
import os
import queue
import termios
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from launch.screen.job_line import job_line, those_that_differ
from launch.screen.plain import plain
from launch.screen.row import Item, Row
from launch.screen.table import fitting, render

_TICK_SECS = 1.0  # between two updates of the elapsed time, if nothing else changes
_MOST_LINES = 1000  # lines that are written at once
_OTHER_LINES = (
    5  # of the screen: the table's header, the other lines of the frame, and one above it
)


def show_live(stream: TextIO, items: "queue.SimpleQueue[Item]", since: float) -> None:
    """Draws the latest table and the lines above it, until None comes from the queue.

    The table is erased at the end, so that the tasks' last lines are the last on the screen.

    Args:
      stream: the terminal.
      items: what there is to show.
      since: when the job began (`time.monotonic`), in seconds.
    """
    console = Console(file=stream, highlight=False)
    live = Live(
        console=console,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
    )
    rows: Sequence[Row] = ()
    with _without_echo(stream), live:
        # The cursor stays visible, since a launcher that is killed could not show it again.
        console.show_cursor(True)
        is_open = True
        while is_open:
            live.update(_frame(console, rows, time.monotonic() - since), refresh=True)
            found = _next_items(items)
            is_open = None not in found
            lines = [item for item in found if isinstance(item, str)]
            if lines:
                text = "\n".join(_wrapped(line, console.width) for line in lines)
                console.print(Text(text), soft_wrap=True)
            for item in found:
                if item is not None and not isinstance(item, str):
                    rows = item
        live.update(Text(), refresh=True)


def _next_items(items: "queue.SimpleQueue[Item]") -> list[Item]:
    """Waits for an item until the next tick, and returns all items that are there."""
    found: list[Item] = []
    with contextlib.suppress(queue.Empty):
        found.append(items.get(timeout=_TICK_SECS))
        while len(found) < _MOST_LINES and found[-1] is not None:
            found.append(items.get_nowait())
    return found


def _wrapped(line: str, width: int) -> str:
    """Breaks a line between words; a long path stays whole, so that it can be copied."""
    words = textwrap.TextWrapper(
        width, expand_tabs=False, break_long_words=False, break_on_hyphens=False
    )
    return words.fill(line) if len(line) > width else line


def _frame(console: Console, rows: Sequence[Row], secs: float) -> RenderableType:
    """Returns what there is to say of tasks, and the line of the job, between empty lines.

    The cursor is in the last one.
    """
    width = console.width - 1  # Some terminals wrap a line that fills them.
    shown, others = fitting(those_that_differ(rows), max(console.height - _OTHER_LINES, 1))
    parts: list[RenderableType] = [render(shown, width)] if shown else []
    texts = [*([others] if others else []), job_line(rows, secs, width)]
    parts += [Text(plain(text), "dim", no_wrap=True, overflow="ellipsis") for text in texts]
    return Group(Text(), *parts, Text())


@contextlib.contextmanager
def _without_echo(stream: TextIO) -> Iterator[None]:
    """Keeps the terminal from showing keys: Enter would move the cursor away from the table."""
    try:
        fd = stream.fileno()
        if os.tcgetpgrp(fd) != os.getpgrp():  # The terminal would stop a process in background.
            raise OSError
        before = termios.tcgetattr(fd)
    except (OSError, ValueError, termios.error):
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    restore = functools.partial(_set_back, fd, before)
    atexit.register(restore)  # for a thread that waits for a terminal that stands still
    try:
        yield
    finally:
        atexit.unregister(restore)
        restore()


def _set_back(fd: int, before: list[Any]) -> None:
    """Gives a terminal its earlier settings, unless it is gone or others use it by now."""
    with contextlib.suppress(OSError, termios.error):
        if os.tcgetpgrp(fd) == os.getpgrp():  # It would stop a process that went to the background.
            termios.tcsetattr(fd, termios.TCSANOW, before)
