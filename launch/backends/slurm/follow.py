"""Follows a submitted job from where it was submitted: its states, its lines and its end."""

import signal
import time
from collections.abc import Sequence
from typing import Optional

from launch.backends.slurm import commands
from launch.backends.slurm.commands import JobState
from launch.backends.slurm.output import JobOutput, output_path
from launch.backends.slurm.settings import settings_of
from launch.backends.slurm.watch import JobWatch
from launch.cluster.tasks import Job
from launch.errors import LaunchError
from launch.record.outcome import Cause, Outcome, end_record, read_cause
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.screen.row import Row
from launch.supervise.supervisor import TaskState
from launch.supervise.task_status import TaskStatusTable

_LOOK_SECS = 0.2
_SHOW_SECS = 1.0
_CLEAR_UP_SECS = 40.0  # beyond the 30 s that Slurm gives a task before SIGKILL, by default


class Follower:
    """Follows one job.

    Args:
      job_id: in Slurm.
      job: what runs.
      folder: the run's, which the job writes to.
      display: what the user sees.
    """

    def __init__(self, job_id: str, job: Job, folder: RunFolder, display: Display) -> None:
        self._job_id = job_id
        self._folder = folder
        self._display = display
        self._pending_secs = settings_of(job.cluster).pending_secs
        self._waiting = {task.name: TaskState(task) for task in job.tasks}
        self._output = JobOutput(output_path(folder), self._waiting, display)
        self._watch = JobWatch(job_id, display)
        self._verdict: Optional[Outcome] = None

    def run(self, stops: list[int]) -> Outcome:
        """Follows the job until nothing of it is left.

        Args:
          stops: signals by which the user asks for the end, as they come: in order, at once, and
            by Slurm's own means. SIGHUP leaves the job alone.
        """
        try:
            return self._follow(stops)
        finally:
            self._output.close()

    def _follow(self, stops: list[int]) -> Outcome:
        began = time.monotonic()
        answered, next_show = 0, 0.0
        ended: Optional[float] = None
        while True:
            now = time.monotonic()
            if self._output.show_new() and self._watch.is_pending:
                self._watch.ask_soon()
            if len(stops) > answered:
                if stops[answered] == signal.SIGHUP:
                    words = f"not followed any more; Slurm job {self._job_id} goes on"
                    return Outcome(129, words, cause=Cause.USER)
                self._end(stops[answered], answered)
                answered += 1
            if self._has_ended() != (ended is not None):
                ended = now if ended is None else None
                self._watch.ask_soon()
            if self._watch.look(now):
                if self._watch.state.is_over or self._clears_up_for_long(ended, now):
                    break
                waits = self._pending_secs is not None and self._watch.is_pending
                if waits and now > began + (self._pending_secs or 0) and self._verdict is None:
                    self._give_up()
            if now >= next_show:
                next_show = now + _SHOW_SECS
                self._show()
            time.sleep(_LOOK_SECS)
        self._output.show_new()
        outcome = self._outcome()
        self._folder.write_status({**self._folder.status(), **end_record(outcome)})
        self._show()
        return outcome

    def _has_ended(self) -> bool:
        """Whether the job itself has told its end."""
        return self._folder.status().get("exit_code") is not None

    def _clears_up_for_long(self, ended: Optional[float], now: float) -> bool:
        """Whether Slurm takes its time after the end, as it does for a node that is gone."""
        if ended is None or self._watch.state.state != "COMPLETING" or now < ended + _CLEAR_UP_SECS:
            return False
        self._display.note(f"Slurm job {self._job_id}: still COMPLETING {self._watch.state.nodes}")
        return True

    def _end(self, signum: int, answered: int) -> None:
        """Ends the job as the user asked for it, for the first, second or a further time."""
        name = signal.Signals(signum).name
        if answered == 0:
            self._verdict = Outcome(128 + signum, f"stopped by {name}", cause=Cause.USER)
        self._display.note(f"{name}: stopping Slurm job {self._job_id}")
        try:
            if answered < 2 and not self._watch.is_pending:
                commands.ask_to_end(self._job_id)
            else:
                commands.cancel(self._job_id)
        except LaunchError as error:
            self._display.note(str(error))
        self._watch.ask_soon()

    def _give_up(self) -> None:
        reason = (
            f"no nodes within {self._pending_secs:g} s ({self._watch.state.reason or 'PENDING'})"
        )
        words = f"{reason}; the limit is pending_secs"
        self._verdict = Outcome(124, words, cause=Cause.TIME_LIMIT)
        commands.cancel(self._job_id)
        self._watch.ask_soon()

    def _show(self) -> None:
        """Shows the job's own table; before there is one, that the tasks wait for nodes."""
        if self._watch.is_pending:
            for state in self._waiting.values():
                state.last = self._watch.words
            self._folder.write_status(TaskStatusTable(self._waiting).status())
        self._display.table([Row(**row) for row in self._folder.status().get("tasks", [])])

    def _outcome(self) -> Outcome:
        """How it ended: as the user wished, or else as the job or Slurm says."""
        status = self._folder.status()
        if self._verdict and status.get("exit_code") in (None, 128 + signal.SIGTERM):
            return self._verdict
        lines = [f"  | {line}" for line in self._output.last_lines if line.strip()]
        log = f"  log: {output_path(self._folder)}"
        if not lines:
            log += " is empty or not there; do the nodes share that folder? see --state-dir"
        return how_it_ended(self._job_id, self._watch.state, status, [*lines, log])


def how_it_ended(
    job_id: str, ended: JobState, status: Record, last_words: Sequence[str]
) -> Outcome:
    """The end of a job that the user has not asked for.

    Args:
      job_id: in Slurm.
      ended: what Slurm knows.
      status: what the job itself has said; without an exit code if it could not.
      last_words: what to show in that case.
    """
    ends = commands.ENDS
    state = "PREEMPTED" if ended.is_preempted and ended.state not in ends else ended.state
    slurms_cause, words = ends.get(state, (Cause.TASK_FAILED, ""))
    words = words.format(**vars(ended))
    code = status.get("exit_code")
    if code is not None:
        cause = read_cause(status)
        if not words and cause is Cause.PLATFORM:
            # Slurm has ended the job before it could ask why.
            words = f"it ended the job; state {ended.state}"
        reason = f"{status['reason']} (Slurm: {words})" if words else str(status["reason"])
        return Outcome(int(code), reason, details=tuple(status.get("details", ())), cause=cause)
    exit_code = 124 if slurms_cause is Cause.TIME_LIMIT else ended.exit_code or 1
    reason = words or f"it ended as {ended.state}, exit code {ended.exit_code}"
    details = tuple(last_words)
    return Outcome(exit_code, f"Slurm job {job_id}: {reason}", details=details, cause=slurms_cause)
