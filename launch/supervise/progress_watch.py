"""Checks that a job's first training step comes in time, and that its tasks keep writing."""

from typing import Optional

from launch.cluster.model import Limits


class ProgressWatch:
    """Checks when the tasks write lines against the limits `start_secs` and `idle_secs`.

    Args:
      limits: the job's time limits.
      now: the time at which the job starts, in seconds, on the same clock as all later times.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._began = self._heard = now
        self._stepped = False

    def heard(self, now: float, *, stepped: bool) -> None:
        """Records that a task wrote lines; `stepped` is whether one reported a training step."""
        self._heard = now
        self._stepped = self._stepped or stepped

    def overdue(self, now: float) -> Optional[str]:
        """Returns which limit is exceeded, in words; None if none is."""
        start_secs, idle_secs = self._limits.start_secs, self._limits.idle_secs
        if start_secs and not self._stepped and now > self._began + start_secs:
            return f"no training step within {start_secs:g} s"
        if idle_secs and self._stepped and now > self._heard + idle_secs:
            return f"no line from any task for {idle_secs:g} s"
        return None
