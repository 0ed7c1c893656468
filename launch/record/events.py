"""events.jsonl of a run: what happened to its tasks and hosts, and why; one JSON object a line."""

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from launch.record.output import utc
from launch.record.run_folder import MAYBE_TEXT, RunFolder, load

_LAST_BYTES = 1 << 16  # of the file, which are read for the last events
_FORM = {"time": str, "task": MAYBE_TEXT, "host": MAYBE_TEXT, "what": str, "reason": str}


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


def add(folder: RunFolder, events: Sequence[RunEvent]) -> None:
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


def path_of(folder: RunFolder) -> Path:
    """Returns the path of the run's file of events."""
    return folder.path / "events.jsonl"


def last_with_reason(folder: RunFolder) -> Optional[RunEvent]:
    """Returns the newest event that has a reason; None if there is none, or no file."""
    try:
        with path_of(folder).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError):  # a damaged line, or the half of one
            found = load(line, _FORM)
            if found["reason"]:
                time_, what, reason = found["time"], found["what"], found["reason"]
                return RunEvent(time_, found.get("task"), found.get("host"), what, reason)
    return None
