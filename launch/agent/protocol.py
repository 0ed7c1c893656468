"""Messages between launcher and agent: one JSON object per line, in both directions.

An order, `{"do": ...}`, comes from the launcher that has sent the agent's own code, so the agent
takes it as it is. An event, `{"event": ...}`, comes from a host, so the launcher checks it.
"""

import json
from collections.abc import Mapping
from typing import Any, Optional

MAGIC = b"launch-agent 1\n"  # a login shell may print other text before this line

SHOWN = 4096  # characters of a text, and of a task's line, that the launcher shows

Message = dict[str, Any]

_LARGEST = 1 << 53  # as a JSON number is exact up to here

# What an agent reports: event -> its fields -> their forms, see `_fits`.
EVENTS: Mapping[str, Mapping[str, Any]] = {
    "hello": {"ports": [int]},
    "beat": {},
    "started": {"task": str},
    "lines": {"task": str, "lines": [str], "dropped": int},
    "exit": {
        "task": str,
        "code": {int, None},
        "reason": str,
        "signals": [int],
    },
    "note": {"text": str},
    "told": {"reason": str},
    "orphaned": {"reason": str, "by_platform": bool},
    "swept": {"pids": [int], "containers": [str], "error": {str, None}},
    "looked": {
        "has_workdir": bool,
        **dict.fromkeys(("python", "tensorflow", "python_error", "code"), {str, None}),
        **dict.fromkeys(("engine_error", "image", "data"), {str, None}),
        "ports": [(int, {str, None})],
        "gpus": [str],
        "disk_free": int,
    },
    "dialled": {"failures": [(str, int, str)]},
}


def encode(message: Message) -> bytes:
    """Returns a message as one line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def read_event(line: bytes) -> Optional[Message]:
    """Returns an agent's message, its texts shortened; None if the line holds none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    event = message.get("event") if isinstance(message, dict) else None
    fields = EVENTS.get(event) if isinstance(event, str) else None
    if fields is None or not all(
        name in message and _fits(message[name], form) for name, form in fields.items()
    ):
        return None
    return {"event": event, **{name: shown(message[name]) for name in fields}}


def _fits(value: Any, form: Any) -> bool:
    """Returns whether a value has a form.

    Args:
      value: the value.
      form: a type, a set of alternatives, a list with the form of every item, or a tuple with the
        form of each item.
    """
    if isinstance(form, set):
        return any(_fits(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(one, form[0]) for one in value)
    if isinstance(form, tuple):
        is_list = isinstance(value, list) and len(value) == len(form)
        return is_list and all(_fits(one, part) for one, part in zip(value, form))
    if form is None:
        return value is None
    return type(value) is form and (form is not int or abs(value) < _LARGEST)


def shown(value: Any) -> Any:
    """Shortens texts, and replaces halves of characters, which no file or terminal can take."""
    if isinstance(value, (list, tuple)):
        return [shown(part) for part in value]
    return value[:SHOWN].encode(errors="replace").decode() if isinstance(value, str) else value
