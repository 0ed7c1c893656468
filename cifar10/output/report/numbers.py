"""Formats values for the page; one that is missing or not finite becomes a dash or words."""

import math
from datetime import datetime, timezone
from typing import Any, Optional

MISSING = "–"
_NARROW_SPACE = "\u202f"
_Z_95 = 1.959964  # the 97.5 % point of the normal distribution


def percent(value: Optional[float], digits: int = 2) -> str:
    """Formats a share: 0.9125 is `91.25 %`."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "not a number"
    return f"{100 * value:.{digits}f}{_NARROW_SPACE}%"


def probability(value: float) -> str:
    """Formats a probability: `> 99.9 %`, `97.3 %`, `< 0.1 %`; never as 0 or 100 %."""
    if value >= 0.9995:
        return f"> {percent(0.999, 1)}"
    return percent(value, 1) if value >= 0.0005 else f"< {percent(0.001, 1)}"


def fixed(value: float, digits: int = 3) -> str:
    """Formats a figure such as a loss; very large and very small values have an exponent."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits}g}"
    return f"{value:,.{digits}f}"


def count(value: Optional[float]) -> str:
    """Formats a number, rounded to a whole one, with thousands separators: `269,722`."""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if math.isfinite(value) else "not a number"


def duration(seconds: float) -> str:
    """Formats a time span in its two largest units: `42 s`, `4 min 12 s`, `1 h 03 min`."""
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, secs = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {secs:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24:02d} h"


def size(num_bytes: float) -> str:
    """Formats a number of bytes: `123.5 MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.1f} {unit}"
    return f"{num_bytes:,.0f} bytes"


def day_and_time(text: str) -> str:
    """Formats an ISO 8601 time with its zone as `7 November 2025, 14:03 UTC`."""
    moment = datetime.fromisoformat(text).astimezone(timezone.utc)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def setting(value: Any) -> str:
    """Formats a value of the configuration: `0.1`, `true`, `cat.png, dog.jpg`, `not set`."""
    if value is None or value == "":
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(setting(item) for item in value) or "none"
    return str(value)


def accuracy_interval(accuracy: float, num_examples: int) -> str:
    """Returns the 95 % confidence interval of an accuracy, for example `90.7 to 91.8 %`.

    Source: the score interval of Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    spread = _Z_95**2 / num_examples
    middle = (accuracy + spread / 2) / (1 + spread)
    half = math.sqrt(accuracy * (1 - accuracy) * spread + spread**2 / 4) / (1 + spread)
    return f"{100 * (middle - half):.1f} to {percent(middle + half, 1)}"


# The template uses these filters by their names.
FILTERS = (percent, probability, fixed, count, duration, size, day_and_time, setting)
