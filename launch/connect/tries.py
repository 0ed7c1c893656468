"""How often, and when, a connection is tried again that a busy host has refused."""

import random
import threading

PAUSE_SECS = (0.5, 3.0)  # by chance: other connections wait, too
_AGAIN = 4


class Tries:
    """Counts the tries of one connection.

    Args:
      closing: set once the connection is not wanted any more.
    """

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._left = _AGAIN

    def again(self) -> bool:
        """Waits a little, and returns whether to try once more."""
        if self._left == 0:
            return False
        self._left -= 1
        return not self._closing.wait(random.uniform(*PAUSE_SECS))
