"""Follows a submitted job from the launcher: shows its states and output, reports its end."""

import math
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
from launch.screen.row import saved_rows
from launch.supervise.supervisor import TaskState
from launch.supervise.task_status import TaskStatusTable

_LOOK_SECS = 0.2
_SHOW_SECS = 1.0
_CLEAR_UP_SECS = 40.0  # beyond the 30 s that Slurm gives a task before SIGKILL, by default


class Follower:
    """Follows one job.

    Args:
      job_id: the job's id in Slurm.
      job: the job's cluster and tasks.
      folder: the run's folder, to which the job writes.
      display: shows the job's progress to the user.
    """

    def __init__(self, job_id: str, job: Job, folder: RunFolder, display: Display) -> None:
        self._job_id = job_id
        self._folder = folder
        self._display = display
        self._pending_secs = settings_of(job.cluster).pending_secs or math.inf
        self._waiting = {task.name: TaskState(task) for task in job.tasks}
        self._output = JobOutput(output_path(folder), self._waiting, display)
        self._watch = JobWatch(job_id, display)
        self._verdict: Optional[Outcome] = None

    def run(self, stops: list[int]) -> Outcome:
        """Follows the job until it has ended; returns how it ended.

        Args:
          stops: a list to which each signal that asks for the end is added. The first signal stops
            the tasks so that they save, the second kills them, and further ones cancel the job in
            Slurm; a pending job is cancelled at once. SIGHUP ends only the following.
        """
        answered, next_show = 0, 0.0
        pending_since: Optional[float] = time.monotonic()
        ended: Optional[float] = None
        while True:
            now = time.monotonic()
            if self._output.show_new() and self._watch.state.is_pending:
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
                if not self._watch.state.is_pending:
                    pending_since = None  # if the job is requeued, its wait begins anew
                elif pending_since is None:
                    pending_since = now
                elif now > pending_since + self._pending_secs and self._verdict is None:
                    self._give_up()
            if now >= next_show:
                next_show = now + _SHOW_SECS
                self._show()
            time.sleep(_LOOK_SECS)
        while self._output.show_new():
            continue
        outcome = self._outcome()
        self._folder.write_status({**self._folder.status(), **end_record(outcome)})
        self._show()
        return outcome

    def _has_ended(self) -> bool:
        """Returns whether the job has written its exit code into the status file."""
        return self._folder.status().get("exit_code") is not None

    def _clears_up_for_long(self, ended: Optional[float], now: float) -> bool:
        """Returns whether the job is COMPLETING long after its end, as when a node is down."""
        if ended is None or self._watch.state.state != "COMPLETING" or now < ended + _CLEAR_UP_SECS:
            return False
        self._display.note(f"Slurm job {self._job_id}: still COMPLETING {self._watch.state.nodes}")
        return True

    def _end(self, signum: int, answered: int) -> None:
        """Stops the job at the user's signal, after `answered` earlier signals."""
        name = signal.Signals(signum).name
        if answered == 0:
            self._verdict = Outcome(128 + signum, f"stopped by {name}", cause=Cause.USER)
        self._display.note(f"{name}: stopping Slurm job {self._job_id}")
        try:
            if answered < 2 and not self._watch.state.is_pending:
                commands.ask_to_end(self._job_id)
            else:
                commands.cancel(self._job_id)
        except LaunchError as error:
            self._display.note(str(error))
        self._watch.ask_soon()

    def _give_up(self) -> None:
        reason = self._watch.state.reason or "PENDING"
        words = f"no nodes within {self._pending_secs:g} s ({reason}); the limit is pending_secs"
        self._verdict = Outcome(124, words, cause=Cause.TIME_LIMIT)
        commands.cancel(self._job_id)
        self._watch.ask_soon()

    def _show(self) -> None:
        """Shows the table from the status file; for a pending job, first writes that tasks wait."""
        if self._watch.state.is_pending:
            for state in self._waiting.values():
                state.last = self._watch.words
            self._folder.write_status(TaskStatusTable(self._waiting).status())
        self._display.table(saved_rows(self._folder.status().get("tasks", [])))

    def _outcome(self) -> Outcome:
        """Returns how the job ended: by this launcher's decision, or as the job or Slurm says."""
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
    """Returns how a job ended that this launcher did not stop.

    Args:
      job_id: the job's id in Slurm.
      ended: Slurm's last answer about the job.
      status: the content of the run's status file; it has no exit code if the job could not write
        its end.
      last_words: lines to show as details if there is no exit code.
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
