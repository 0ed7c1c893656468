"""Lists a job's pods after a watch has ended, to find those that no further watch will mention."""

from collections.abc import Callable, Iterator
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import Kubectl
from launch.backends.kubernetes.streams import Stream

_AGAIN_SECS = 2.0
_UIDS = '--output=jsonpath={range .items[*]}{.metadata.uid}{"\\n"}{end}'


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
        self._due = 0.0

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
            self._known, self._listed = known, set()
            self.stream = Stream(self._command, _lines, self._hear)

    def take(self, item: Optional[str], now: float) -> list[str]:
        """Takes an item of the stream; returns the uids of the pods that are gone."""
        if item is not None:
            self._listed.add(item)
            return []
        if self.stream is None:
            return []
        code = self.stream.code
        self.close()
        self._due = now + _AGAIN_SECS
        if code != 0:
            self._is_wanted = True
            return []
        return sorted(self._known - self._listed)

    def close(self) -> None:
        """Ends the request that is under way."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None


def _lines(parts: Iterator[bytes]) -> Iterator[str]:
    return (part.decode(errors="replace").strip() for part in parts)
