"""Lists a job's pods, to find those that went unseen between two watches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.streams import Stream

_AGAIN_SECS = 2.0
_UIDS = '--output=jsonpath={range .items[*]}{.metadata.uid}{"\\n"}{end}'


@dataclass(frozen=True)
class Listed:
    """A complete list of a job's pods.

    Attributes:
      asked: when the list was asked for.
      uids: the uids of the pods that exist.
      gone: the uids of the pods that were known before, and do not exist any more.
    """

    asked: float
    uids: frozenset[str]
    gone: tuple[str, ...]


class PodList:
    """A list of the uids of a job's pods.

    A pod that was known before the request, and that the list lacks, is gone for ever: uids do not
    come again. This holds whatever the watches have reported in the meantime.

    Args:
      kubectl: runs kubectl for the job's cluster and namespace.
      selector: kubectl's selector for the job's pods.
      hear: a function to call in a thread with the stream and each item; it must pass those of
        `stream` to `take`.

    Attributes:
      stream: the request that is under way; None if none is.
    """

    def __init__(
        self, kubectl: Kubectl, selector: str, hear: Callable[[Stream, Any], None]
    ) -> None:
        self.stream: Optional[Stream] = None
        self._command = kubectl.command("get", "pods", selector, _UIDS)
        self._hear = hear
        self._known: frozenset[str] = frozenset()
        self._listed: set[str] = set()
        self._is_wanted = False
        self._due = self._asked = 0.0

    def ask(self) -> None:
        """Asks for a list, as soon as there is no request under way."""
        self._is_wanted = True

    def keep_asking(self, known: frozenset[str], now: float) -> None:
        """Sends the request if one is due.

        Args:
          known: the uids of the pods that should exist.
          now: the time.
        """
        if self._is_wanted and self.stream is None and now >= self._due:
            self._is_wanted = False
            self._known, self._listed, self._asked = known, set(), now
            self.stream = Stream(self._command, _lines, self._hear)

    def take(self, item: Optional[str], now: float) -> Optional[Listed]:
        """Takes an item of the stream; returns the list once it is complete."""
        if item is not None:
            self._listed.add(item)
            return None
        if self.stream is None:
            return None
        code = self.stream.code
        self.close()
        self._due = now + _AGAIN_SECS
        if code != 0:
            self._is_wanted = True
            return None
        gone = tuple(sorted(self._known - self._listed))
        return Listed(self._asked, frozenset(self._listed), gone)

    def close(self) -> None:
        """Ends the request that is under way."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None


def _lines(parts: Iterator[bytes]) -> Iterator[str]:
    return (part.decode(errors="replace").strip() for part in parts)
