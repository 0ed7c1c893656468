"""Messages between launcher and agent: one JSON object per line, in both directions.

An order, `{"do": ...}`, comes from the launcher that has sent the agent's own code, so the agent
takes it as it is. An event, `{"event": ...}`, comes from a host.
"""

import json
from collections.abc import Mapping
from typing import Any, Optional

MAGIC = b"launch-agent 1\n"  # a login shell may print other text before this line

SHOWN = 4096  # characters of a text, and of a task's line, that the launcher shows

Message = dict[str, Any]

# What an agent reports: event -> its fields.
EVENTS: Mapping[str, frozenset[str]] = {
    event: frozenset(fields.split())
    for event, fields in {
        "hello": "ports",
        "beat": "",
        "started": "task",
        "lines": "task lines dropped",
        "exit": "task code reason signals",
        "note": "text",
        "told": "reason",
        "orphaned": "reason by_platform",
        "swept": "pids containers error",
        "looked": "has_workdir python tensorflow python_error code engine_error image data ports "
        "gpus disk_free",
        "dialled": "failures",
    }.items()
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
    if fields is None or not fields <= message.keys():
        return None
    return {"event": event, **{name: shown(message[name]) for name in fields}}


def shown(value: Any) -> Any:
    """Shortens texts, and replaces halves of characters, which no file or terminal can take."""
    if isinstance(value, (list, tuple)):
        return [shown(part) for part in value]
    return value[:SHOWN].encode(errors="replace").decode() if isinstance(value, str) else value
