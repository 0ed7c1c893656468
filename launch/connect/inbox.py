"""A queue of limited size for what hosts send."""

import queue
from typing import Optional, TypeVar

T = TypeVar("T")

_LOOK_SECS = 0.2


class Inbox(queue.Queue[T]):
    """A queue that makes its senders wait while it is full, and lets them go once it is closed.

    A host that sends more than the launcher can handle must wait for it: then its agent leaves out
    lines of its tasks, which are in the logs.

    Args:
      size: how many messages it holds, which may have a megabyte each.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._is_closed = False

    def put(self, item: T, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an item; without a timeout, drops it if the queue is full and closed."""
        if not block or timeout is not None:
            super().put(item, block, timeout)
            return
        while True:
            try:
                super().put(item, timeout=_LOOK_SECS)
                return
            except queue.Full:
                if self._is_closed:
                    return

    def close(self) -> None:
        """Says that nobody reads the queue any more."""
        self._is_closed = True
