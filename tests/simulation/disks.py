"""Disks of simulated hosts, which may not answer for a while, and the logs on them."""

from tests.simulation.world import World

_BEHIND = 2  # lines that a log may have in memory, until the agent reads no more


class Disk:
    """A disk.

    Attributes:
      hangs_until: the time until which it answers nobody.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.hangs_until = 0.0

    @property
    def answers(self) -> bool:
        """Whether writes return now."""
        return self._world.now >= self.hangs_until


class Log:
    """A task's log; `launch.agent.log_writer.LogWriter` for the agent.

    Args:
      disk: the disk that it is on.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting = 0  # lines in memory

    def write(self, count: int) -> None:
        """Takes lines."""
        self._waiting = 0 if self._disk.answers else self._waiting + count

    @property
    def is_behind(self) -> bool:
        """Whether the agent should not read more for now."""
        return not self._disk.answers and self._waiting >= _BEHIND

    def new_errors(self) -> list[str]:
        """Returns no errors: a disk that does not answer has none."""
        return []

    def close(self) -> None:
        """Does nothing."""

    def wait(self, secs: float) -> bool:
        """Returns whether all is written; the simulated agent does not wait."""
        self.write(0)
        return not self._waiting
