"""The slurm backend: Slurm chooses the nodes, and the batch job itself runs the tasks on them.

The launcher submits the job, follows it by asking Slurm for its state, and ends it when the user
asks for that. As Slurm's users expect, the job goes on without the launcher.
"""

import math
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from launch.backends.base import Backend
from launch.backends.slurm import commands
from launch.backends.slurm.commands import ENDS, JobState
from launch.backends.slurm.script import NAME, options, script
from launch.backends.slurm.settings import settings_of
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome, end_record, read_cause
from launch.record.output import Follower as Log
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.screen.row import Row, saved_rows
from launch.supervise.run import passed_values
from launch.supervise.run_loop import stop_signals

_LOOK_SECS = 0.5  # between two looks at what the job has written
_HURRY_SECS = 1.0  # between two questions to Slurm while the job starts or ends
_LONGEST_WAIT_SECS = 10.0  # between two questions otherwise: the controller serves many users
_END_SECS = 150.0  # Slurm gives a job that it ends 30 s between SIGTERM and SIGKILL, by default
_CLEAR_UP_SECS = 40.0  # beyond the 30 s that Slurm gives a task before SIGKILL, by default
_LAST_LINES = 12

_SAVE, _KILL, _CANCEL = 1, 2, 3  # how urgently a job is to end; `_CANCEL`: Slurm ends it


class Slurm(Backend):
    """Runs all tasks in one batch job."""

    def plan(self, job: Job) -> list[Document]:
        """Returns the batch script."""
        return [Document(f"{NAME}.sbatch", script(job))]

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Submits the batch script, and follows the job to its end."""
        with stop_signals() as stops:  # those that come before sbatch answers wait until then
            job_id = _submit(job, folder)
            display.note(
                f"Slurm job {job_id}: submitted; should this launcher end, it goes on: "
                f"stop --run {folder.run_id}"
            )
            follower = Follower(job_id, job, folder, display)
            while (outcome := follower.step(time.monotonic(), stops)) is None:
                time.sleep(_LOOK_SECS)
            return outcome

    def check(self, job: Job) -> list[str]:
        """Returns what sbatch says about when and where the job would start.

        Raises:
          LaunchError: Slurm would refuse the job, or a variable to pass is not set here.
          HostError: Slurm does not answer.
        """
        passed_values(job.cluster.passed)
        with tempfile.NamedTemporaryFile("w", suffix=".sbatch", encoding="utf-8") as file:
            file.write(script(job))
            file.flush()
            found = commands.sbatch("--test-only", *options(job.cluster), file.name)
        return [found, "Slurm chooses the nodes later: their code and data could not be looked at"]

    def going_on(self, record: Record) -> str:
        """Returns the id and state of the run's job in words; an empty string once it is over."""
        return _words(commands.jobs_named(_name(record["run"])))

    def stop(self, record: Record, *, now: bool) -> None:
        """Ends the run's job, and waits for its end; with `now`, tasks get no time to save."""
        _end(record, _KILL if now else _SAVE)

    def clean(self, record: Record) -> list[str]:
        """Cancels the run's job if it is not over, and waits for its end."""
        jobs = _end(record, _CANCEL)
        return [f"Slurm job {job}: cancelled; it was {state.words}" for job, state in jobs.items()]


def _submit(job: Job, folder: RunFolder) -> str:
    """Submits the job and returns its id.

    Raises:
      LaunchError: Slurm refuses it, or a variable to pass is not set here.
      HostError: the run's folder cannot be written.
    """
    passed_values(job.cluster.passed)
    path = folder.path / f"{NAME}.sbatch"
    try:
        for file in (path, output_path(folder)):
            file.touch(mode=0o600)  # only its owner may read it
        path.write_text(script(job), encoding="utf-8")
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}; --state-dir names another place") from None
    output = str(output_path(folder)).replace("%", "%%")
    words = [f"--job-name={_name(folder.run_id)}", f"--output={output}", "--export=ALL"]
    # The script holds no value of a variable: the job gets them from the environment of sbatch. If
    # this launcher runs in a Slurm job, the variables of that job must not get into the new one.
    own = {n: v for n, v in os.environ.items() if not n.startswith("SLURM_") or n == "SLURM_CONF"}
    run = f"--run={folder.path.absolute()}"
    env = {**own, **dict(job.cluster.environment)}
    found = commands.sbatch("--parsable", *options(job.cluster), *words, str(path), run, env=env)
    return found.split(";")[0]


def output_path(folder: RunFolder) -> Path:
    """Returns the path of the file that receives the output of the batch script."""
    return folder.path.absolute() / "slurm.out"


def _name(run_id: str) -> str:
    return f"{NAME}-{run_id}"


def _words(jobs: Mapping[str, JobState]) -> str:
    return ", ".join(f"Slurm job {job_id}: {state.words}" for job_id, state in jobs.items())


@dataclass
class _Ending:
    """What is asked of Slurm until a job has ended, in whatever state it is seen.

    A job may start, end or return to the queue at any moment, also between a question to Slurm and
    the request that follows from its answer. So a request is repeated until the job is over.

    Attributes:
      urgency: how urgently the job is to end; 0 if it is to go on.
      num_asked: how often the batch script was asked since its start.
    """

    urgency: int = 0
    num_asked: int = 0

    def ask(self, job_id: str, state: JobState) -> None:
        """Makes the request that Slurm's latest answer calls for; LaunchError if Slurm refuses."""
        if state.is_pending or state.state == "COMPLETING":
            self.num_asked = 0  # if it is requeued, another script starts
        if self.urgency == _CANCEL or (self.urgency and state.is_pending):
            commands.cancel(job_id)
        elif state.state != "COMPLETING" and (
            # The job may take a SIGTERM for one that Slurm has sent to all of its processes, so two
            # of them may be too few to kill its tasks. More than two do no harm.
            self.num_asked < self.urgency or self.urgency == _KILL
        ):
            commands.ask_to_end(job_id)
            self.num_asked += 1


def _end(record: Record, urgency: int) -> dict[str, JobState]:
    """Asks for the end of the run's job until it is over, also if it is requeued meanwhile.

    Returns:
      The job as it was found: its id -> its state; empty if there is none.

    Raises:
      HostError: it is not over in time.
    """
    deadline = time.monotonic() + _END_SECS
    ending, found, refusal = _Ending(urgency), dict[str, JobState](), ""
    num_absent = 0
    while num_absent < 2:  # a job that is being requeued could be missing once
        jobs = commands.jobs_named(_name(record["run"]))
        num_absent = 0 if jobs else num_absent + 1
        found = found or jobs
        for job_id, state in jobs.items():
            try:
                ending.ask(job_id, state)
            except LaunchError as error:  # it may have ended or begun since `jobs_named`
                refusal = f"; {error}"
        if jobs and time.monotonic() > deadline:
            raise HostError(f"{_words(jobs)}: not over after {_END_SECS:g} s{refusal}")
        time.sleep(_HURRY_SECS)
    return found


class Follower:
    """Follows one job: shows its states, ends it, and says how it ended.

    Args:
      job_id: the job's id in Slurm.
      job: the job's cluster and tasks.
      folder: the run's folder, to which the job writes what its tasks do.
      display: shows the job's progress to the user.
    """

    def __init__(self, job_id: str, job: Job, folder: RunFolder, display: Display) -> None:
        self._job_id, self._folder, self._display = job_id, folder, display
        self._pending_secs = settings_of(job.cluster).pending_secs or math.inf
        self._tasks = job.tasks
        self._output = Log(output_path(folder))
        self._state, self._answers = JobState(""), True
        self._asked_at, self._wait_secs = -math.inf, _HURRY_SECS
        self._pending_since = 0.0
        self._known: object = None  # the time of the last status that no running job wrote
        self._completing_since = math.inf  # Slurm says so, though the job has written its end
        self._shown: object = None  # the time of the last status that the table has shown
        self._ending, self._num_stops = _Ending(), 0
        self._verdict: Optional[Outcome] = None

    def step(self, now: float, stops: Sequence[int]) -> Optional[Outcome]:
        """Does what is due at a time; returns how the job ended, once that is known.

        Args:
          now: the time, by time.monotonic.
          stops: the signals so far that ask for the end. The first one stops the tasks so that they
            save, the second kills them, and further ones cancel the job in Slurm; a pending job is
            cancelled at once. SIGHUP ends only the following.
        """
        status = self._folder.status()
        self._show(status)
        if len(stops) > self._num_stops:
            if stops[self._num_stops] == signal.SIGHUP:
                goes_on = "is asked to end" if self._ending.urgency else "goes on"
                words = f"not followed any more; Slurm job {self._job_id} {goes_on}"
                return Outcome(129, words, cause=Cause.USER)
            self._stop(stops[self._num_stops])
        starts = self._state.is_pending and status.get("time") != self._known
        if starts or self._ending.urgency or status.get("exit_code") is not None:
            self._wait_secs = min(self._wait_secs, _HURRY_SECS)
        if now < self._asked_at + self._wait_secs:
            return None
        self._asked_at, self._wait_secs = now, min(1.5 * self._wait_secs, _LONGEST_WAIT_SECS)
        try:
            state = commands.show(self._job_id)
        except HostError as error:
            if self._answers:
                self._display.note(f"{error}; the job goes on")
            self._answers = False
            return None
        self._answers = True
        return self._take(state, now)

    def _take(self, state: JobState, now: float) -> Optional[Outcome]:
        """Acts on Slurm's answer; returns how the job ended if it is over."""
        status = self._folder.status()
        before, self._state = self._state, state
        is_completing = state.state == "COMPLETING"
        if not is_completing or status.get("exit_code") is None:
            self._completing_since = now
        is_stuck = now >= self._completing_since + _CLEAR_UP_SECS  # as when a node is down
        if is_stuck:
            self._display.note(f"Slurm job {self._job_id}: still {state.words}")
        if is_stuck or state.is_over:
            return self._over()
        if state.words != before.words and not is_completing:
            self._display.note(f"Slurm job {self._job_id}: {state.words}")
        if state.is_pending and not before.is_pending:  # submitted, or returned to the queue
            self._pending_since, self._known = now, status.get("time")
        if state.is_pending and status.get("time") == self._known:
            self._waits(now)
        try:
            self._ending.ask(self._job_id, state)
        except LaunchError as error:
            self._display.note(str(error))
        return None

    def _waits(self, now: float) -> None:
        """Writes that the tasks wait for nodes; gives up after `pending_secs`."""
        rows = [
            Row(task.name, task.host.name, "waiting", "", "", self._state.words)
            for task in self._tasks
        ]
        status = {"time": time.time(), **end_record(None), "tasks": [vars(row) for row in rows]}
        self._folder.write_status(status)
        self._known = self._folder.status().get("time")
        if now > self._pending_since + self._pending_secs and self._verdict is None:
            reason = self._state.reason or "PENDING"
            words = (
                f"no nodes within {self._pending_secs:g} s ({reason}); the limit is pending_secs"
            )
            self._verdict = Outcome(124, words, cause=Cause.TIME_LIMIT)
            self._ending.urgency = max(self._ending.urgency, _SAVE)

    def _stop(self, signum: int) -> None:
        """Begins to stop the job at a signal of the user."""
        name = signal.Signals(signum).name
        if self._num_stops == 0:
            self._verdict = Outcome(128 + signum, f"stopped by {name}", cause=Cause.USER)
        self._num_stops += 1
        self._ending.urgency = min(self._num_stops, _CANCEL)
        self._display.note(f"{name}: stopping Slurm job {self._job_id}")
        self._asked_at = -math.inf  # the last answer may be old

    def _show(self, status: Record, *, final: bool = False) -> None:
        """Shows new lines of the batch script, and the table of a new status."""
        rows = saved_rows(status.get("tasks", []))
        for line in self._output.lines(final=final):
            self._display.note(line.text)
        if rows and status.get("time") != self._shown:
            self._shown = status.get("time")
            self._display.table(rows)

    def _over(self) -> Outcome:
        """Shows what is left, and writes how the job ended: by this launcher, or as Slurm says."""
        self._show(self._folder.status(), final=True)
        status = self._folder.status()
        if self._verdict and status.get("exit_code") in (None, 128 + signal.SIGTERM):
            outcome = replace(self._verdict, details=tuple(status.get("details", ())))
        else:
            outcome = how_it_ended(self._job_id, self._state, status, output_path(self._folder))
        self._folder.write_end(outcome)
        self._display.table(saved_rows(self._folder.status().get("tasks", [])))
        return outcome


def how_it_ended(job_id: str, ended: JobState, status: Record, output: Path) -> Outcome:
    """Returns how a job ended that this launcher did not stop.

    Args:
      job_id: the job's id in Slurm.
      ended: Slurm's last answer about the job.
      status: the content of the run's status file; it has no exit code if the job could not write
        its end. Then the last lines of its output are shown as details.
      output: the file with the output of the batch script.
    """
    state = "PREEMPTED" if ended.is_preempted and ended.state not in ENDS else ended.state
    slurms_cause, words = ENDS.get(state, (Cause.TASK_FAILED, ""))
    words = words.format(**vars(ended))
    code = status.get("exit_code")
    if code is not None:
        cause = read_cause(status)
        if not words and cause is Cause.PLATFORM:
            # Slurm has ended the job before it could ask why.
            words = f"it ended the job; state {ended.state}"
        reason = f"{status['reason']} (Slurm: {words})" if words else str(status["reason"])
        return Outcome(int(code), reason, details=tuple(status.get("details", ())), cause=cause)
    reason = words or f"it ended as {ended.state}, exit code {ended.exit_code}"
    lines = [line.text for line in Log(output).lines(final=True) if line.text.strip()]
    log = f"  log: {output}"
    if not lines:
        log += " is empty or not there; do the nodes share that folder? see --state-dir"
    return Outcome(
        124 if slurms_cause is Cause.TIME_LIMIT else ended.exit_code or 1,
        f"Slurm job {job_id}: {reason}",
        details=(*(f"  | {line}" for line in lines[-_LAST_LINES:]), log),
        cause=slurms_cause,
    )
