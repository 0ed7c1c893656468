"""Follows a job of Slurm to its end, shows its states, and ends it when the user asks.

The job itself runs the tasks and writes the run's folder, which the nodes share with this machine.
"""

import math
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from launch.backends.slurm.scheduler import CANCEL, JobState, SlurmJob
from launch.errors import HostError
from launch.record.output import LogReader
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.screen.display import Display

HURRY_SECS = 1.0  # between two questions to the scheduler while the job starts or ends
_WAIT_SECS = 5.0  # between two questions otherwise: the scheduler serves many users
_CLEAR_UP_SECS = 40.0  # beyond those 30 s
_LAST_LINES = 12


def output_path(folder: RunFolder) -> Path:
    """Returns the path of the file that receives the output of the batch script."""
    return folder.path.absolute() / "slurm.out"


class JobWatch:
    """Follows one job: shows its states, ends it, and says how it ended.

    Args:
      job: the job.
      folder: the run's folder, to which the job writes.
      display: shows the job's progress to the user.
    """

    def __init__(self, job: SlurmJob, folder: RunFolder, display: Display) -> None:
        self._job, self._folder, self._display = job, folder, display
        self._output = LogReader(output_path(folder))
        self._state, self._answers, self._asked_at = JobState(""), True, -math.inf
        self._ending_since = math.inf  # the scheduler says so, though the job has written its end
        self._stops: list[int] = []

    def step(self, now: float, stops: Sequence[int]) -> Optional[Result]:
        """Does what is due at a time; returns how the job ended, once that is known.

        Args:
          now: the time, by time.monotonic.
          stops: the signals so far that ask for the end. The first one asks the tasks to save and
            end, a second one cancels the job; a pending job is cancelled at once. SIGHUP ends only
            the following.
        """
        self._show_output()
        for signum in stops[len(self._stops) :]:
            if signum == signal.SIGHUP:
                goes_on = "is asked to end" if self._stops else "goes on"
                words = f"not followed any more; {self._job.title} {goes_on}"
                return Result(128 + signum, words, cause=ExitReason.USER)
            self._stops.append(signum)
            self._job.urgency = min(len(self._stops), CANCEL)
            self._display.note(f"{signal.Signals(signum).name}: stopping {self._job.title}")
            self._asked_at = -math.inf  # the last answer may be old
        hurries = self._stops or self._folder.status().get("exit_code") is not None
        if now < self._asked_at + (HURRY_SECS if hurries else _WAIT_SECS):
            return None
        self._asked_at = now
        try:
            state = self._job.poll()
        except HostError as error:
            if self._answers:
                self._display.note(f"{error}; the job goes on")
            self._answers = False
            return None
        self._answers = True
        before, self._state = self._state, state
        # The job may have written its end while the scheduler was asked.
        is_late = state.is_ending and self._folder.status().get("exit_code") is not None
        self._ending_since = min(self._ending_since, now) if is_late else math.inf
        if state.is_over or now >= self._ending_since + _CLEAR_UP_SECS:  # as when a node is down
            return self._over()
        if state.words != before.words and not state.is_ending:
            self._display.note(f"{self._job.title}: {state.words}")
        if refusal := self._job.ask_to_end(state):
            self._display.note(refusal)
        return None

    def _show_output(self, *, final: bool = False) -> None:
        """Shows new lines of the batch script."""
        for line in self._output.lines(final=final):
            self._display.note(line.text)

    def _over(self) -> Result:
        """Shows what is left, and writes how the job ended."""
        self._show_output(final=True)
        result = self._folder.end()
        if self._stops and (result is None or result.exit_code == 128 + signal.SIGTERM):
            signum, details = self._stops[0], () if result is None else result.details
            words = f"stopped by {signal.Signals(signum).name}"
            result = Result(128 + signum, words, details=details, cause=ExitReason.USER)
        else:
            output = output_path(self._folder)
            result = how_it_ended(self._job.title, self._state, result, output)
        self._folder.write_end(result)
        return result


def how_it_ended(title: str, ended: JobState, said: Optional[Result], output: Path) -> Result:
    """Returns how a job ended that this launcher did not stop.

    Args:
      title: what to call the job.
      ended: the last answer about the job.
      said: how it ended, as the job itself has written; None if it could not. Then the last lines
        of its output are shown as details.
      output: the file with the output of the batch script.
    """
    if said is not None:
        cause, why = said.cause, ended.why
        if cause is ExitReason.PLATFORM:
            cause, why = ended.cause or cause, why or f"it ended the job; state {ended.words}"
        reason = f"{said.reason} (Slurm: {why})" if why else said.reason
        return replace(said, reason=reason, cause=cause)
    why = ended.why or f"it ended as {ended.words}, exit code {ended.exit_code}"
    lines = [line.text for line in LogReader(output).lines(final=True) if line.text.strip()]
    log = f"  log: {output}"
    if not lines:
        log += " is empty or not there; do the nodes share that folder? see --state-dir"
    return Result(
        124 if ended.cause is ExitReason.TIME_LIMIT else ended.exit_code or 1,
        f"{title}: {why}",
        details=(*(f"  | {line}" for line in lines[-_LAST_LINES:]), log),
        cause=ended.cause or ExitReason.TASK_FAILED,
    )
