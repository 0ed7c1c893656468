"""Reads what the program that prepares a host says."""

import json
from dataclasses import dataclass
from typing import Any, Optional

from launch.agent.host_setup import MARK

_LONGEST = 1000  # characters of a text
_LAST_LINES = 8


@dataclass(frozen=True)
class Event:
    """What a host says.

    Attributes:
      kind: `hello`, `beat`, `progress`, `done` or `failed`.
      words: what was done, or is being done.
      note: what the user should know besides.
      reason: why a step failed.
      last: the last lines of the program that failed.
      missing: files that the host lacks, or that differ there.
      others: files that only the host has.
      marked: whether the folder is marked as incomplete.
      done: how much of `of` is done.
      of: how much there is to do; 0 if that is not known.
    """

    kind: str
    words: str = ""
    note: str = ""
    reason: str = ""
    last: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    marked: bool = False
    done: int = 0
    of: int = 0


def read_event(raw: bytes) -> Optional[Event]:
    """Returns the event in a line; None for what a login shell prints, or what is no event.

    A field of a wrong type is left out, and long texts are cut: a host may send anything.
    """
    text = raw.decode(errors="replace")
    if not text.startswith(MARK):
        return None
    try:
        found = json.loads(text[len(MARK) :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        return None
    texts = {
        name: found[name][:_LONGEST]
        for name in ("words", "note", "reason")
        if isinstance(found.get(name), str)
    }
    lists = {
        name: tuple(one for one in found[name] if isinstance(one, str))
        for name in ("last", "missing", "others")
        if isinstance(found.get(name), list)
    }
    lists["last"] = tuple(one[:_LONGEST] for one in lists.get("last", ())[-_LAST_LINES:])
    numbers = {
        name: found[name]
        for name in ("done", "of")
        if type(found.get(name)) is int and 0 <= found[name] < 1 << 30
    }
    marked = found.get("marked") is True
    fields: dict[str, Any] = {**texts, **lists, **numbers, "marked": marked}
    return Event(found["event"], **fields)
