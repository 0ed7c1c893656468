"""How a peer reports its speed. Standard library only."""

import json
import statistics
import time

from benchmarks.peers.networks import PeerRun


class StepTimes:
    """Takes the time of each step.

    Args:
      run: what is trained, and how many steps are timed.
    """

    def __init__(self, run: PeerRun) -> None:
        self._run = run
        self._ends: list[float] = []

    @property
    def total_steps(self) -> int:
        """All steps, the warm-up's included."""
        return self._run.network.warm_up + self._run.steps

    def step_ended(self) -> None:
        """A step has just ended."""
        self._ends.append(time.perf_counter())

    def print_rate(self) -> None:
        """Prints the JSON line: images/s by the median step after the warm-up."""
        ends = self._ends[self._run.network.warm_up - 1 :]
        median = statistics.median(later - end for end, later in zip(ends, ends[1:]))
        print(json.dumps({"images_per_sec": round(self._run.batch_size / median, 1)}))
