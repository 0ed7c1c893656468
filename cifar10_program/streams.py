"""Standard streams that may be closed, or that nobody reads any more; lines for them."""

import atexit
import io
import math
import os
import sys
import unicodedata
from typing import TextIO


def open_streams() -> None:
    """Makes the standard streams usable, however this process was started; each program calls it.

    A stream that was closed, as by `2>&-`, is opened on /dev/null: there is none in Python, and the
    next file that is opened would get its number, so that others print into it. Standard output
    shows what its encoding lacks as an escape. At the end of the process, a reader that has ended,
    such as `head`, is no error.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free is the stream's, since those below it are open.
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            # Like Python's own standard error, it takes any character.
            stream = os.fdopen(number, mode, errors="backslashreplace", closefd=False)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper) and _may_refuse(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")
    atexit.unregister(_flush_at_exit)
    atexit.register(_flush_at_exit)


def _may_refuse(stream: io.TextIOWrapper) -> bool:
    """Returns whether a stream raises an error for some characters."""
    if stream.errors == "surrogateescape":
        # In the C locale, a stream is UTF-8 and writes the bytes of a file's name as they are.
        return stream.encoding.lower() != "utf-8"
    return stream.errors == "strict"


def _flush_at_exit() -> None:
    """Flushes the streams; Python would report readers that have ended, with exit code 120."""
    if not sys.stdout.closed:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            discard(sys.stdout)
    if not sys.stderr.closed:
        try:
            sys.stderr.flush()
        except OSError:
            discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Leads what is still printed on a stream, whose reader has ended, to /dev/null."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def one_line(message: str) -> str:
    """Returns a message as one printable line, since names and files may hold any character."""
    return "".join(c if c.isprintable() else " " for c in message)


def columns_of(text: str) -> int:
    """Returns how many columns of a terminal a text takes: Chinese letters take two each."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def padded(text: str, columns: int) -> str:
    """Returns a text with spaces at its end, so that it takes at least so many columns."""
    return text + " " * (columns - columns_of(text))


def format_duration(seconds: float) -> str:
    """Formats a time span in its two largest units: `42s`, `4m12s`, `1h03m`, `2d04h`."""
    if not math.isfinite(seconds):
        return "?"
    minutes, secs = divmod(max(0, round(seconds)), 60)
    hours, mins = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24}d{hours % 24:02d}h"
    if hours:
        return f"{hours}h{mins:02d}m"
    return f"{minutes}m{secs:02d}s" if minutes else f"{secs}s"


def log_error(line: str) -> None:
    """Prints a line on standard error.

    If it cannot be printed, as when the reader has ended, the exit code alone tells of the error.
    """
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard(sys.stderr)
    except OSError:
        # The disk of a log may have room again for later lines.
        pass
