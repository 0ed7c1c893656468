"""Keeps the place in a pod's log up to which its lines were taken, across connections.

A new connection repeats earlier lines. They are recognised by their order in the log: all lines up
to the last one that was taken are old. The order of the timestamps says nothing, since the clock of
a node can be wrong, and can be set back while the pod runs.
"""

import re
from datetime import datetime, timedelta
from typing import Optional

from launch.backends.kubernetes.streams import LogPart

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_SET_BACK = timedelta(days=1)  # how far a clock may be set back while no connection is open


class LogPlace:
    """The place in the log of one pod.

    Only complete lines count, and only parts of full size of a line that has not ended: the end of
    a connection can cut a line, which the next connection repeats.

    Attributes:
      is_doubtful: whether this connection gave new lines without the last one that was taken. The
        node may have removed that, or these lines are those of another pod of the same name.
      first: the first part of the first line that was taken; None before.
    """

    def __init__(self) -> None:
        self.is_doubtful = False
        self.first: Optional[LogPart] = None
        self._last = ""  # timestamp of the last line that was taken
        self._count = 0  # lines taken since the first one with that timestamp, if they share it
        self._parts = 0  # parts of the last line that were taken
        self._highest = ("", "")  # key of the greatest timestamp so far
        self._repeated = 0  # lines with the last timestamp that this connection still repeats
        self._part = 0  # number of the current part in its line
        self._is_old = False  # whether the current line was taken before
        self._is_last = False  # whether the current line is the last one that was taken
        self._cut: Optional[bytes] = None  # the text of a line that the connection's end has cut
        self._foreign = b""  # the newest text without a timestamp

    @property
    def since(self) -> str:
        """A time from which on a new connection should repeat lines; "" for all lines."""
        if not self._last:
            return ""
        try:
            moment = datetime.fromisoformat(self._last[:19]) - _SET_BACK
        except (ValueError, OverflowError):
            return ""
        return moment.strftime("%Y-%m-%dT%H:%M:%S") + (_zone(self._last) or "Z")

    def resume(self) -> None:
        """Prepares for a new connection."""
        self._repeated = self._count
        self._cut = None
        self.is_doubtful = False

    def take(self, part: LogPart) -> Optional[bytes]:
        """Takes the next part of a line; returns its text, or None if it is old or cut."""
        if part.is_first:
            return self._begins(part)
        self._part += not part.is_cut
        number = self._part + part.is_cut
        if self._is_old or (self._is_last and number <= self._parts):
            return None
        if part.is_cut:
            self._cut = part.text
            return None
        self._parts = number
        return part.text

    def rest(self) -> Optional[bytes]:
        """Returns the text of a last line without a line end, once the log is complete."""
        rest, self._cut = self._cut, None
        return rest

    def _begins(self, part: LogPart) -> Optional[bytes]:
        """Takes the first part of a line; returns its text if it is new."""
        self._part, self._is_last = 1, False
        if part.is_cut:
            self._cut = None if self._is_repeated(part.stamp) else part.text
            return None
        if not _STAMP.fullmatch(part.stamp):
            return self._says_something_else(part)
        self._is_old = self._is_repeated(part.stamp)
        if not self._is_old:
            self.is_doubtful |= self._repeated > 0
            self._repeated = 0
            self._count = self._count + 1 if part.stamp == self._last else 1
            self._last, self._parts = part.stamp, 1
            self._highest = max(self._highest, _key(part.stamp))
            self.first = self.first or part
            return part.text
        if part.stamp == self._last:
            self._repeated -= 1
            self._is_last = self._repeated == 0
            self._is_old = not self._is_last
        return None

    def _says_something_else(self, part: LogPart) -> Optional[bytes]:
        """Takes text that the node's kubelet writes instead of the pod's; returns it if new."""
        words = b" ".join(filter(None, (part.stamp.encode(), part.text)))
        self._is_old = words == self._foreign
        self._foreign = words
        return None if self._is_old else words

    def _is_repeated(self, stamp: str) -> bool:
        # If the node has removed the last line, as kubelets do with long logs, a line with a
        # greater timestamp than all before is new.
        return self._repeated > 0 and _key(stamp) <= self._highest


def _key(stamp: str) -> tuple[str, str]:
    """Returns a sort key for timestamps, whose fractions may lack trailing zeros."""
    seconds, _, fraction = stamp.partition(".")
    return seconds[:19], re.sub(r"[^\d].*", "", fraction).ljust(9, "0")


def _zone(stamp: str) -> str:
    found = _STAMP.fullmatch(stamp)
    return found[2] if found else ""
