"""Tries a connection again where a host had too much to do for it."""

import random
import threading

_TIMES = 4
PAUSE_SECS = (0.5, 3.0)  # between two tries, by chance: other connections wait, too


class Tries:
    """The further tries of one connection.

    Args:
      closing: an event that ends the pauses; after it, there is no further try.

    Attributes:
      left: the number of tries that are left.
    """

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self.left = _TIMES

    def again(self) -> bool:
        """Waits until the next try is due; returns False if there is none."""
        if not self.left:
            return False
        self.left -= 1
        return not self._closing.wait(random.uniform(*PAUSE_SECS))
