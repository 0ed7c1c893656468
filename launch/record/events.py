"""events.jsonl of a run: what happened to its tasks and hosts, and why; one JSON object a line."""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from launch.record.output import utc

if TYPE_CHECKING:
    from launch.record.run_folder import RunFolder

_LAST_BYTES = 1 << 16  # of the file, which are read for the last events
MAYBE_TEXT, MAYBE_INT = (str, type(None)), (int, type(None))
_FORM = {"time": str, "task": MAYBE_TEXT, "host": MAYBE_TEXT, "what": str, "reason": str}
_NEWS = ("start", "restart")  # after the end of a run, such as a requeued one, it goes on


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
    return RunEvent(utc(time.time()), task, host, what, reason, exit_code)


def add(folder: "RunFolder", events: Sequence[RunEvent]) -> None:
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


def path_of(folder: "RunFolder") -> Path:
    """Returns the path of the run's file of events."""
    return folder.path / "events.jsonl"


def last_with_reason(folder: "RunFolder") -> Optional[RunEvent]:
    """Returns the newest event that has a reason; None if there is none, or no file."""
    return next((one for one in _newest_first(folder) if one.reason), None)


def end(folder: "RunFolder") -> Optional[RunEvent]:
    """Returns the end of the run; None if it goes on, or if nobody wrote that it ended."""
    ends = ("run ends", *_NEWS)
    last = next((one for one in _newest_first(folder) if one.what in ends), None)
    return None if last is None or last.what in _NEWS else last


def _newest_first(folder: "RunFolder") -> Iterator[RunEvent]:
    """Yields the last events, the newest first; skips damaged lines."""
    try:
        with path_of(folder).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in reversed(lines):  # the first one may be a half
        with contextlib.suppress(ValueError):
            found = load(line, {**_FORM, "exit_code": MAYBE_INT})
            yield RunEvent(*(found.get(key) for key in (*_FORM, "exit_code")))  # type: ignore[arg-type]


def load(data: bytes, form: Any, **defaults: object) -> dict[str, Any]:
    """Returns the JSON object that a file of a run, or a line of it, holds.

    Args:
      data: the content.
      form: its form: the key of each field -> a type or several, the form of an object, or a list
        with the form of every item.
      defaults: what fields hold that are missing.

    Raises:
      ValueError: it is no JSON, or has another form.
    """
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    found = {**defaults, **found} if isinstance(found, dict) else found
    if not _fits(found, form):
        raise ValueError("a field is missing, or of another type")
    return dict(found)


def _fits(found: Any, form: Any) -> bool:
    if isinstance(form, dict):
        return isinstance(found, dict) and all(_fits(found.get(k), f) for k, f in form.items())
    if isinstance(form, list):
        return isinstance(found, list) and all(_fits(one, form[0]) for one in found)
    return isinstance(found, form)
