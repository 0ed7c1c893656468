"""The forms of run.json and status.json, which an editor, a full disk or other versions may change.

What reads these files relies on the fields that are checked here.
"""

from collections.abc import Mapping
from typing import Any, Optional

_Types = tuple[type, ...]
_TEXT: _Types = (str,)
_MAYBE_TEXT: _Types = (str, type(None))
_ABSENT = object()  # is of none of these types

_RECORD: Mapping[str, _Types] = {
    "run": _TEXT,
    "backend": _TEXT,
    "launcher": (dict,),
    "hosts": (list,),
    "tasks": (list,),
}
_LAUNCHER: Mapping[str, _Types] = {
    "pid": (int,),
    "started": _MAYBE_TEXT,
    "boot": _TEXT,
    "machine": _TEXT,
}
_HOST: Mapping[str, _Types] = {"name": _TEXT, "user": _MAYBE_TEXT, "agent_python": _TEXT}
_TASK: Mapping[str, _Types] = {"task": _TEXT, "host": _TEXT}


def missing_in_record(record: Any) -> Optional[str]:
    """Returns the first field that run.json lacks or has with another type; None if it is whole."""
    missing = _missing(record, _RECORD) or missing_in_launcher(record)
    for host in [] if missing else record["hosts"]:
        missing = missing or _missing(host, _HOST, "host's ")
    for task in [] if missing else record["tasks"]:
        missing = missing or _missing(task, _TASK, "task's ")
    return missing


def began_at(record: Mapping[str, Any]) -> Optional[float]:
    """Returns when a run began, in seconds since 1970; None if its run.json does not say."""
    began = record.get("began")
    return began if isinstance(began, (int, float)) and 0 <= began < 1e12 else None


def missing_in_launcher(record: Any) -> Optional[str]:
    """Returns the first field of run.json's `launcher` that is missing or has another type."""
    launcher = record.get("launcher") if isinstance(record, dict) else None
    return _missing(launcher, _LAUNCHER, "launcher's ")


def is_status(status: Any) -> bool:
    """Returns whether the fields of status.json that the launcher reads have their types."""
    if not isinstance(status, dict):
        return False
    code, reason, rows = status.get("exit_code"), status.get("reason"), status.get("tasks", [])
    return (
        isinstance(code, (int, type(None)))
        and isinstance(reason, (str, type(None)))
        and isinstance(rows, list)
        and all(isinstance(row, dict) for row in rows)
    )


def _missing(found: Any, fields: Mapping[str, _Types], owner: str = "") -> Optional[str]:
    for name, types in fields.items():
        if not isinstance(found, dict) or not isinstance(found.get(name, _ABSENT), types):
            return f"{owner}{name}"
    return None
