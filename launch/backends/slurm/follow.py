"""Follows a submitted job from the launcher: shows its states and output, reports its end."""

import math
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from launch.backends.slurm import commands
from launch.backends.slurm.commands import JobState
from launch.backends.slurm.output import JobOutput, output_path
from launch.backends.slurm.pursuit import Pursuit, Request, Wish
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
        self._pursuit = Pursuit()
        self._num_answered = 0  # of the user's signals
        self._next_show = 0.0
        self._pending_since: Optional[float] = None
        self._ended: Optional[float] = None  # when the job wrote its exit code
        self._waits = True  # Slurm's last answer says so
        self._known = folder.status().get("time")  # of the last status that no running job wrote

    def run(self, stops: list[int]) -> Outcome:
        """Follows the job until it has ended; returns how it ended.

        Args:
          stops: a list to which each signal that asks for the end is added. The first signal stops
            the tasks so that they save, the second kills them, and further ones cancel the job in
            Slurm; a pending job is cancelled at once. SIGHUP ends only the following.
        """
        while True:
            outcome = self.step(time.monotonic(), stops)
            if outcome is not None:
                return outcome
            time.sleep(_LOOK_SECS)

    def step(self, now: float, stops: Sequence[int]) -> Optional[Outcome]:
        """Does what is due at the time `now`; returns how the job ended, once that is known."""
        if self._pending_since is None and self._waits:
            self._pending_since = now
        if self._output.show_new() and self._watch.state.is_pending:
            self._watch.ask_soon()
        if len(stops) > self._num_answered:
            signum = stops[self._num_answered]
            if signum == signal.SIGHUP:
                return self._left()
            self._end(signum)
        if self._has_ended() != (self._ended is not None):
            self._ended = now if self._ended is None else None
            self._watch.ask_soon()
        if self._watch.look(now) and self._is_over(now):
            return self._over()
        if now >= self._next_show:
            self._next_show = now + _SHOW_SECS
            self._show()
        return None

    def _is_over(self, now: float) -> bool:
        """Judges Slurm's new answer; returns whether the job is over."""
        state = self._watch.state
        if state.is_over or self._clears_up_for_long(now):
            return True
        if not self._watch.answers:
            return False
        if state.is_pending and not self._waits:
            self._known = self._folder.status().get("time")  # by the run before the requeue
            self._pending_since = now  # if the job is requeued, its wait begins anew
        self._waits = state.is_pending
        limit = (self._pending_since or now) + self._pending_secs
        if self._is_pending() and now > limit and self._verdict is None:
            self._give_up()
        self._pursue(now)
        return False

    def _is_pending(self) -> bool:
        """Returns whether the job waits, by Slurm's last answer and by what the job has written."""
        return self._watch.state.is_pending and not self._has_written()

    def _has_written(self) -> bool:
        """Returns whether the job has written its status since it was last known to wait."""
        return bool(self._folder.status().get("time") != self._known)

    def _left(self) -> Outcome:
        goes_on = "is asked to end" if self._pursuit.wish else "goes on"
        words = f"not followed any more; Slurm job {self._job_id} {goes_on}"
        return Outcome(129, words, cause=Cause.USER)

    def _over(self) -> Outcome:
        while self._output.show_new():
            continue
        outcome = self._outcome()
        self._folder.write_status({**self._folder.status(), **end_record(outcome)})
        self._display.table(saved_rows(self._folder.status().get("tasks", [])))
        return outcome

    def _has_ended(self) -> bool:
        """Returns whether the job has written its exit code into the status file."""
        return self._folder.status().get("exit_code") is not None

    def _clears_up_for_long(self, now: float) -> bool:
        """Returns whether the job is COMPLETING long after its end, as when a node is down."""
        is_late = self._ended is not None and now >= self._ended + _CLEAR_UP_SECS
        if not is_late or self._watch.state.state != "COMPLETING":
            return False
        self._display.note(f"Slurm job {self._job_id}: still COMPLETING {self._watch.state.nodes}")
        return True

    def _end(self, signum: int) -> None:
        """Begins to stop the job at a signal of the user."""
        name = signal.Signals(signum).name
        if self._num_answered == 0:
            self._verdict = Outcome(128 + signum, f"stopped by {name}", cause=Cause.USER)
        self._num_answered += 1
        self._pursuit.wish = Wish(min(self._num_answered, Wish.CANCEL))
        self._display.note(f"{name}: stopping Slurm job {self._job_id}")
        self._watch.ask_soon()  # the last answer may be old; `_pursue` follows the new one

    def _pursue(self, now: float) -> None:
        """Makes the request that is due, and asks Slurm soon for what has become of it."""
        state, has_written = self._watch.state, self._has_written()
        request = self._pursuit.due(state, now, has_written=has_written)
        if request is None:
            return
        try:
            if request is Request.CANCEL:
                commands.cancel(self._job_id)
            else:
                commands.ask_to_end(self._job_id)
        except LaunchError as error:
            self._display.note(str(error))
        self._watch.ask_soon()

    def _give_up(self) -> None:
        reason = self._watch.state.reason or "PENDING"
        words = f"no nodes within {self._pending_secs:g} s ({reason}); the limit is pending_secs"
        self._verdict = Outcome(124, words, cause=Cause.TIME_LIMIT)
        self._pursuit.wish = max(self._pursuit.wish, Wish.SAVE)

    def _show(self) -> None:
        """Shows the table from the status file; for a pending job, first writes that tasks wait."""
        if self._is_pending():
            for state in self._waiting.values():
                state.last = self._watch.words
            status = TaskStatusTable(self._waiting).status()
            if not self._has_written():
                self._folder.write_status(status)
                self._known = status["time"]
        self._display.table(saved_rows(self._folder.status().get("tasks", [])))

    def _outcome(self) -> Outcome:
        """Returns how the job ended: by this launcher's decision, or as the job or Slurm says."""
        status = self._folder.status()
        if self._verdict and status.get("exit_code") in (None, 128 + signal.SIGTERM):
            return replace(self._verdict, details=tuple(status.get("details", ())))
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
