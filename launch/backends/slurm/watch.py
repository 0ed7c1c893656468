"""Asks Slurm for a job's state: often at first, then less and less often."""

from launch.backends.slurm import commands
from launch.backends.slurm.commands import JobState
from launch.errors import HostError
from launch.screen.display import Display

_FIRST_WAIT_SECS, _LONGEST_WAIT_SECS = 0.3, 10.0  # few questions: the controller serves many users


class JobWatch:
    """Watches the state of one job, and tells the user when it changes.

    Args:
      job_id: the job's id in Slurm.
      display: shows each new state to the user.

    Attributes:
      state: Slurm's last answer; PENDING before the first one.
      words: the same as text; "" before the first answer.
      answers: whether Slurm has answered the last question.
    """

    def __init__(self, job_id: str, display: Display) -> None:
        self.state = JobState("PENDING")
        self.words = ""
        self._job_id = job_id
        self._display = display
        self.answers = True
        self._next_ask, self._wait_secs = 0.0, _FIRST_WAIT_SECS

    def ask_soon(self) -> None:
        """Makes the next `look` ask Slurm, and the following ones ask often."""
        self._next_ask, self._wait_secs = 0.0, _FIRST_WAIT_SECS

    def look(self, now: float) -> bool:
        """Asks Slurm if a question is due; returns whether one was.

        Args:
          now: the time, by time.monotonic.
        """
        if now < self._next_ask:
            return False
        self._next_ask = now + self._wait_secs
        self._wait_secs = min(1.3 * self._wait_secs, _LONGEST_WAIT_SECS)
        try:
            self.state = commands.show(self._job_id)
        except HostError as error:
            if self.answers:
                self._display.note(f"{error}; the job goes on")
            self.answers = False
            return True
        self.answers = True
        is_news = self.state.words != self.words and self.state.state != "COMPLETING"
        if is_news and not self.state.is_over:
            self._display.note(f"Slurm job {self._job_id}: {self.state.words}")
        self.words = self.state.words
        return True
