"""Memory and descriptors of processes over time, and how fast both grow."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20


def least_squares(times: Sequence[float], values: Sequence[float]) -> float:
    """Returns the slope of the line that fits best; 0 for fewer than two times."""
    if len(set(times)) < 2:
        return 0.0
    mean_time, mean_value = sum(times) / len(times), sum(values) / len(values)
    above = sum((t - mean_time) * (v - mean_value) for t, v in zip(times, values))
    return above / sum((t - mean_time) ** 2 for t in times)


@dataclass
class Series:
    """What was sampled of one process.

    Attributes:
      name: the task, `launcher` or `agent`.
      pid: the process id.
      times: seconds since the start of the job.
      memory: resident memory, MiB.
      descriptors: open descriptors.
    """

    name: str
    pid: int
    times: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    descriptors: list[float] = field(default_factory=list)

    def sample(self, now: float) -> None:
        """Adds the process's present state; nothing if it has ended."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            count = len(os.listdir(f"/proc/{self.pid}/fd"))
            if pages:
                self.times.append(now)
                self.memory.append(pages * _PAGE / _MIB)
                self.descriptors.append(count)

    def settled(self, shortest_secs: float) -> "Optional[Settled]":
        """Returns what the process does in the second half of the time that it was watched.

        In the first half, it loads TensorFlow, connects, trains and saves for the first time.

        Args:
          shortest_secs: how long that half must be; None is returned for a shorter one.
        """
        secs = self.times[-1] - self.times[0] if self.times else 0.0
        if secs / 2 < shortest_secs:
            return None
        first = next(i for i, t in enumerate(self.times) if t - self.times[0] >= secs / 2)
        times = self.times[first:]
        return Settled(
            self.name,
            self.pid,
            secs=times[-1] - times[0],
            memory=self.memory[-1],
            memory_slope=60 * least_squares(times, self.memory[first:]),
            descriptors=int(self.descriptors[-1]),
            descriptors_slope=60 * least_squares(times, self.descriptors[first:]),
        )


@dataclass(frozen=True)
class Settled:
    """The second half of the time that a process was watched.

    Attributes:
      name: the task, `launcher` or `agent`.
      pid: the process id.
      secs: how long that is.
      memory: resident memory at the end, MiB.
      memory_slope: MiB a minute.
      descriptors: open descriptors at the end.
      descriptors_slope: descriptors a minute.
    """

    name: str
    pid: int
    secs: float
    memory: float
    memory_slope: float
    descriptors: int
    descriptors_slope: float
