"""Durations and moments of the command line."""

import argparse
import datetime
import re
import time

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:[0-9]{1,6}[smhd])+")


def moment(text: str) -> float:
    """Returns the time that `10m`, `1h30m` or `2026-01-31T12:00` means, in seconds since 1970.

    Raises:
      argparse.ArgumentTypeError: it means none.
    """
    if _DURATION.fullmatch(text):
        parts = re.findall(r"([0-9]+)([smhd])", text)
        return time.time() - sum(int(number) * _UNITS[unit] for number, unit in parts)
    try:
        # Python 3.9 and 3.10 do not know Z.
        return datetime.datetime.fromisoformat(re.sub("Z$", "+00:00", text)).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"must be a time ago, such as 30s, 10m, 1h30m or 2d, or a date and time, such as "
            f"2026-01-31T12:00, got {text[:40]!r}"
        ) from None


def pattern(text: str) -> "re.Pattern[bytes]":
    """Returns a compiled regular expression.

    Raises:
      argparse.ArgumentTypeError: it is none.
    """
    try:
        return re.compile(text.encode())
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(
            f"must be a regular expression, got {text[:40]!r}: {error}"
        ) from None


def age(secs: float) -> str:
    """Returns a duration in its two largest units: `5 s`, `3 min`, `2 h 05 min`, `4 d 3 h`."""
    whole = max(0, int(secs))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
