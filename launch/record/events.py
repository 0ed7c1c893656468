"""events.jsonl of a run: what happened to its tasks and hosts, and why; one JSON object a line."""

import contextlib
import datetime
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional, Protocol

_LAST_BYTES = 1 << 16  # of the file, which are read for the last events
TEXT, MAYBE_TEXT = (str,), (str, type(None))  # forms of fields, see `load`
_FORM = {"time": TEXT, "task": MAYBE_TEXT, "host": MAYBE_TEXT, "what": TEXT, "reason": TEXT}
_NEWS = ("start", "restart")  # after the end of a run, such as a requeued one, it goes on


class Folder(Protocol):
    """The folder of a run, which `launch.record.run_folder` describes."""

    path: Path


@dataclass(frozen=True)
class RunEvent:
    """One thing that happened.

    Attributes:
      time: when, in UTC: `2026-01-31T12:00:00.123Z`.
      task: the task to which it happened; None if it is of a host or of the whole run.
      host: the task's host, or the host that was lost; None if it is of the whole run.
      what: `start`, `restart`, `signal`, `end`, `host lost`, `stop`, `run ends` or `left running`.
      reason: why it happened, or how it ended; empty if there is nothing to say.
      exit_code: of `run ends`, the job's; else None, and not in the file.
    """

    time: str
    task: Optional[str]
    host: Optional[str]
    what: str
    reason: str
    exit_code: Optional[int] = None

    def words(self) -> str:
        """Describes the event in one line, without its time."""
        place = " on ".join(part for part in (self.task, self.host) if part)
        return ": ".join(part for part in (place, self.what, self.reason) if part)


def event(
    what: str,
    reason: str = "",
    task: Optional[str] = None,
    host: Optional[str] = None,
    exit_code: Optional[int] = None,
) -> RunEvent:
    """Returns an event that happens now."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return RunEvent(f"{now}Z", task, host, what, reason, exit_code)


def add(folder: Folder, events: Sequence[RunEvent]) -> None:
    """Appends events to the run's file; ignores errors, since the job must go on."""
    text = ""
    for one in events:
        fields = asdict(one)
        if one.exit_code is None:
            del fields["exit_code"]
        text += f"{json.dumps(fields)}\n"
    with contextlib.suppress(OSError):
        fd = os.open(path_of(folder), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def path_of(folder: Folder) -> Path:
    """Returns the path of the run's file of events."""
    return folder.path / "events.jsonl"


def last_with_reason(folder: Folder) -> Optional[RunEvent]:
    """Returns the newest event that has a reason; None if there is none, or no file."""
    return next((one for one in newest_first(folder) if one.reason), None)


def end(folder: Folder) -> Optional[RunEvent]:
    """Returns the end of the run; None if it goes on, or if nobody wrote that it ended."""
    ends = ("run ends", *_NEWS)
    last = next((one for one in newest_first(folder) if one.what in ends), None)
    return None if last is None or last.what in _NEWS else last


def newest_first(folder: Folder) -> Iterator[RunEvent]:
    """Yields the last events, the newest first; skips damaged lines."""
    try:
        with path_of(folder).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in reversed(lines):  # the first one may be a half
        with contextlib.suppress(ValueError):
            found = load(line, _FORM)
            code = found.get("exit_code")
            fields = {key: found[key] for key in _FORM}
            yield RunEvent(**fields, exit_code=code if isinstance(code, int) else None)


def load(data: bytes, form: Any) -> dict[str, Any]:
    """Returns the JSON object that a file of a run, or a line of it, holds.

    Args:
      data: the content.
      form: its form: the key of each field, with `?` if it may be missing -> a tuple of types, the
        form of an object, or a list with the form of every item.

    Raises:
      ValueError: it is no JSON, or in what it differs from the form.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    wrong = _unlike(found, form)
    if wrong:
        raise ValueError(wrong)
    return dict(found)


def _unlike(found: Any, form: Any, name: str = "it") -> str:
    """Returns what is missing or has another type in JSON; an empty string if nothing."""
    if isinstance(form, tuple):
        return "" if isinstance(found, form) else f"{name} is missing or of another type"
    if not isinstance(found, type(form)):
        return f"{name} is no {'list' if isinstance(form, list) else 'object'}"
    if isinstance(form, list):
        parts = ((one, form[0], f"an item of {name}") for one in found)
    else:
        parts = (
            (found.get(key.rstrip("?"), ...), part, f"`{key.rstrip('?')}`")
            for key, part in form.items()
            if not key.endswith("?") or key[:-1] in found
        )
    return next((wrong for part in parts if (wrong := _unlike(*part))), "")
