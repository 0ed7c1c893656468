"""Messages between launcher and agent: one JSON object per line, in both directions.

An order, `{"do": ...}`, comes from the launcher that has sent the agent's own code, so the agent
takes it as it is. An event, `{"event": ...}`, comes from a host.
"""

import json
from typing import Any, Optional

MAGIC = b"launch-agent 1\n"  # a login shell may print other text before this line

SHOWN = 4096  # characters of a text, and of a task's line, that the launcher shows

Message = dict[str, Any]

# What an agent reports.
EVENTS = {"ready", "beat", "started", "lines", "exit", "note", "preempted", "launcher_lost",
          "reaped", "probed", "checked"}  # fmt: skip


def encode(message: Message) -> bytes:
    """Returns a message as one line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def read_event(line: bytes) -> Optional[Message]:
    """Returns an agent's message, its texts shortened; None if the line holds none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(message, dict) and str(message.get("event")) in EVENTS
    return shown(message) if is_event else None


def shown(value: Any) -> Any:
    """Shortens texts, and replaces halves of characters, which no file or terminal can take."""
    if isinstance(value, (list, tuple)):
        return [shown(part) for part in value]
    if isinstance(value, dict):
        return {shown(name): shown(part) for name, part in value.items()}
    return value[:SHOWN].encode(errors="replace").decode() if isinstance(value, str) else value
