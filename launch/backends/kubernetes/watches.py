"""Keeps kubectl's watches open, which API servers and networks end at times.

The job runs without its launcher, so a watch that fails is tried again for as long as the job
lasts: an outage of the API ends no job.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import Kubectl, UnreadableError
from launch.backends.kubernetes.objects import Warned, read_tfjob, read_warning
from launch.backends.kubernetes.pods import read_pod
from launch.backends.kubernetes.streams import Split, Stream, watch_events
from launch.errors import HostError

UNREADABLE = "UNREADABLE"  # the type of an event whose object cannot be read; words replace it

_AGAIN_SECS = 1.0  # between the end of a watch and the next one, doubled after each failure
_LONGEST_AGAIN_SECS = 8.0
_WATCH = ("--watch", "--output-watch-events", "--output=json")


@dataclass
class Watch:
    """One watch, across connections.

    Attributes:
      words: the words of kubectl after `get`.
      split: makes items of kubectl's output.
      is_needed: whether the job cannot be followed without it.
      stream: the open connection.
      due: when to open the next one.
      wait: the time from the end of a connection to the next one.
      has_worked: whether any connection delivered an item.
      told: the error that the user was told last.
    """

    words: Sequence[str]
    split: Split
    is_needed: bool = True
    stream: Optional[Stream] = None
    due: float = 0.0
    wait: float = _AGAIN_SECS
    has_worked: bool = False
    told: str = ""

    def open(self, kubectl: Kubectl, hear: Callable[[Stream, Any], None], now: float) -> None:
        """Opens a connection if none is open and one is due."""
        if self.stream is None and now >= self.due:
            command = kubectl.command("get", *self.words, *_WATCH)
            self.stream = Stream(command, self.split, hear)

    def ended(self, kubectl: Kubectl, now: float) -> tuple[str, str]:
        """Records the end of the connection.

        Returns:
          kubectl's standard error, and what to tell the user: "" if that is no news.

        Raises:
          HostError: the user may not watch what the job cannot be followed without.
        """
        if self.stream is None:
            return "", ""
        stream, self.stream = self.stream, None
        errors, unreadable = stream.last_words(), stream.unreadable
        stream.close()
        if stream.has_items and not unreadable:
            self.has_worked, self.wait, self.told = True, _AGAIN_SECS, ""
        else:
            self.wait = min(2 * self.wait, _LONGEST_AGAIN_SECS)
        self.due = now + self.wait
        words = unreadable or (kubectl.explain(errors) if errors.strip() else "")
        if self.is_needed and not self.has_worked and "(Forbidden)" in errors:
            raise HostError(words)
        is_news = bool(words) and words != self.told
        self.told = words or self.told
        return errors, words if is_news else ""

    def close(self) -> None:
        """Ends the connection."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None


def pod_events(parts: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    """Yields (event type, pod or None) for each event of a watch of pods."""
    return _read_events(parts, read_pod)


def tfjob_events(parts: Iterator[bytes]) -> Iterator[tuple[str, Any]]:
    """Yields (event type, state) for each event of a watch of a TFJob."""
    return _read_events(parts, read_tfjob)


def warnings(prefix: str) -> Split:
    """Returns a function that yields the warnings about objects whose names begin with `prefix`."""

    def split(parts: Iterator[bytes]) -> Iterator[Warned]:
        found = (read_warning(event) for kind, event in watch_events(parts) if kind != "DELETED")
        return (warned for warned in found if warned.about.startswith(prefix) and warned.words)

    return split


def _read_events(parts: Iterator[bytes], read: Callable[[Any], Any]) -> Iterator[tuple[str, Any]]:
    for kind, found in watch_events(parts):
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            try:
                yield kind, read(found)
            except UnreadableError as error:
                yield UNREADABLE, str(error)
