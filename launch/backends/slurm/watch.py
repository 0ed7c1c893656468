"""Asks Slurm where a job stands: often at first and after news, then less and less often."""

from launch.backends.slurm import commands
from launch.backends.slurm.commands import JobState
from launch.errors import HostError
from launch.screen.display import Display

_FIRST_WAIT_SECS, _LONGEST_WAIT_SECS = 0.3, 10.0  # the controller has others to serve


class JobWatch:
    """The last state of one job that Slurm has told.

    Args:
      job_id: in Slurm.
      display: tells the user what is new.

    Attributes:
      state: what Slurm said last.
      words: the same in words; "" before the first answer.
    """

    def __init__(self, job_id: str, display: Display) -> None:
        self.state = JobState("PENDING")
        self.words = ""
        self._job_id = job_id
        self._display = display
        self._answers = True
        self._next_ask, self._wait_secs = 0.0, _FIRST_WAIT_SECS

    def ask_soon(self) -> None:
        """Asks at the next look, and often from then on."""
        self._next_ask, self._wait_secs = 0.0, _FIRST_WAIT_SECS

    def look(self, now: float) -> bool:
        """Asks Slurm if it is time to; returns whether it was."""
        if now < self._next_ask:
            return False
        self._next_ask = now + self._wait_secs
        self._wait_secs = min(1.3 * self._wait_secs, _LONGEST_WAIT_SECS)
        try:
            self.state = commands.show(self._job_id)
        except HostError as error:
            if self._answers:
                self._display.note(f"{error}; the job goes on")
            self._answers = False
            return True
        self._answers = True
        is_news = self.state.words != self.words and self.state.state != "COMPLETING"
        if is_news and not self.state.is_over:
            self._display.note(f"Slurm job {self._job_id}: {self.state.words}")
        self.words = self.state.words
        return True
