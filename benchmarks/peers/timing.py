"""How a peer reports its speed. Standard library only."""

import json
import statistics
import time

WARM_UP_STEPS = 5


class StepTimes:
    """Takes the time of each step.

    Args:
      steps: to be timed, after the warm-up.
    """

    def __init__(self, steps: int) -> None:
        self.total_steps = WARM_UP_STEPS + steps
        self._ends: list[float] = []

    def step_ended(self) -> None:
        """A step has just ended."""
        self._ends.append(time.perf_counter())

    def print_rate(self, batch_size: int) -> None:
        """Prints the JSON line: images/s by the median step after the warm-up."""
        ends = self._ends[WARM_UP_STEPS - 1 :]
        median = statistics.median(later - end for end, later in zip(ends, ends[1:]))
        print(json.dumps({"images_per_sec": round(batch_size / median, 1)}))
