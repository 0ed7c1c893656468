"""A world: its clock, its chances and what happens in it, all of which follow from the seed."""

import heapq
import random
from collections.abc import Callable
from typing import Any, Optional


class World:
    """Runs events in the order of their times; those of the same time in the order of their making.

    Args:
      seed: decides everything by chance, so that a seed always gives the same run.
      traces: whether to keep the trace.

    Attributes:
      now: the time in seconds.
      rng: every chance comes from it.
      trace: a line of text for each thing that has happened; None without one.
    """

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.trace: Optional[list[str]] = [] if traces else None
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._num_made = 0

    def later(self, secs: float, do: Callable[..., object], *arguments: Any) -> None:
        """Makes something happen after `secs`."""
        self._num_made += 1
        heapq.heappush(self._heap, (self.now + secs, self._num_made, do, arguments))

    def run(self, until: float, is_over: Callable[[], bool]) -> None:
        """Lets things happen until a time, or until `is_over` returns true."""
        while self._heap and self._heap[0][0] <= until and not is_over():
            self.now, _, do, arguments = heapq.heappop(self._heap)
            do(*arguments)
        if not is_over():
            self.now = until

    def say(self, *words: Any) -> None:
        """Adds a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:8.3f}  " + " ".join(map(str, words)))
