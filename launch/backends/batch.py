"""Schedulers that take batch scripts: submits a job, follows it, and ends it when the user asks.

The script runs the tasks and writes the run's folder, which the nodes share with this machine. As
users of schedulers expect, the job goes on without its launcher.
"""

import json
import math
import signal
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Optional

from launch.backends.base import Backend
from launch.cluster.model import FREE_PORTS, TASK_TYPES, Cluster
from launch.cluster.tasks import Job
from launch.cluster.yaml_section import said
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome, end_record, read_cause
from launch.record.output import Follower as Log
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run_loop import stop_signals
from launch.supervise.task_state import TaskState

_LOOK_SECS = 0.5  # between two looks at what the job has written
_HURRY_SECS = 1.0  # between two questions to the scheduler while the job starts or ends
_WAIT_SECS = 5.0  # between two questions otherwise: the scheduler serves many users
_END_SECS = 150.0  # Slurm gives a job that it ends 30 s between SIGTERM and SIGKILL, by default
_CLEAR_UP_SECS = 40.0  # beyond those 30 s
_LAST_LINES = 12

_SAVE, _CANCEL = 1, 2  # how urgently a job is to end


@dataclass(frozen=True)
class JobState:
    """What a scheduler says of a job.

    Attributes:
      words: its state for people, such as `RUNNING m[1-2]`.
      is_pending: whether it waits in the queue, before its start or after a requeue.
      is_ending: whether its script has ended, or was told to, but the scheduler has not cleared up.
      is_over: whether it has ended, and the scheduler has cleared up.
      exit_code: the exit code of the script; 128 + n for signal n.
      cause: why the scheduler has ended it; None if it ended by itself.
      why: the same in words, with the way out.
    """

    words: str
    is_pending: bool = False
    is_ending: bool = False
    is_over: bool = False
    exit_code: int = 0
    cause: Optional[Cause] = None
    why: str = ""


class Batch(Backend):
    """Runs all tasks in one batch job.

    Attributes:
      title: what people call the scheduler.
    """

    title: ClassVar[str]
    chooses_hosts = True
    default_ports = FREE_PORTS
    is_lasting = True

    @abstractmethod
    def submit(self, job: Job, folder: RunFolder) -> str:
        """Submits the job, whose output goes to `output_path`; returns its id.

        Raises:
          LaunchError: the scheduler refuses it.
          HostError: the scheduler does not answer, or the folder cannot be written.
        """

    @abstractmethod
    def find(self, run_id: str) -> str:
        """Returns the id of a run's job in the queue, or ""; HostError without an answer."""

    @abstractmethod
    def poll(self, job_id: str) -> JobState:
        """Returns the scheduler's answer about a job; HostError if it does not answer."""

    @abstractmethod
    def end(self, job_id: str, *, saves: bool) -> None:
        """Asks for the end of a job.

        Args:
          job_id: the job's id.
          saves: whether to ask the script alone, which lets the tasks save, or else to cancel it.

        Raises:
          LaunchError: the scheduler refuses, or does not answer.
        """

    def output_path(self, folder: RunFolder) -> Path:
        """Returns the path of the file that receives the output of the batch script."""
        return folder.path.absolute() / f"{self.name}.out"

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Submits the batch script, and follows the job to its end."""
        with stop_signals() as stops:
            job_id = self.submit(job, folder)  # a signal waits: only its answer names the job
            display.note(
                f"{self.title} job {job_id}: submitted; should this launcher end, it goes on: "
                f"stop --run {folder.run_id}"
            )
            if not folder.status()["tasks"]:  # until the job writes its own
                tasks = [vars(TaskState(task).row()) for task in job.tasks]
                folder.write_status({"time": time.time(), **end_record(None), "tasks": tasks})
            follower = Follower(self, job_id, folder, display)
            while (outcome := follower.step(time.monotonic(), stops)) is None:
                time.sleep(_LOOK_SECS)
            return outcome

    def going_on(self, record: Record) -> str:
        """Returns the id and state of the run's job in words; an empty string once it is over."""
        job_id, state = self._found(record)
        return "" if state.is_over else f"{self.title} job {job_id}: {state.words}"

    def stop(self, record: Record, *, now: bool) -> None:
        """Ends the run's job, and waits for its end; with `now`, the scheduler ends its tasks."""
        self._end(record, _CANCEL if now else _SAVE)

    def clean(self, record: Record) -> list[str]:
        """Cancels the run's job if it is not over, and waits for its end."""
        job_id, state = self._end(record, _CANCEL)
        cancelled = f"{self.title} job {job_id}: cancelled; it was {state.words}"
        return [] if state.is_over else [cancelled]

    def _found(self, record: Record) -> tuple[str, JobState]:
        job_id = self.find(record["run"])
        return job_id, self.poll(job_id) if job_id else JobState("", is_over=True)

    def _end(self, record: Record, urgency: int) -> tuple[str, JobState]:
        """Ends the run's job, also if it is requeued meanwhile; returns it as it was."""
        deadline, ending = time.monotonic() + _END_SECS, _Ending(self, urgency)
        first = job_id, state = self._found(record)
        while not state.is_over:
            why = ending.ask(job_id, state)
            if time.monotonic() > deadline:
                words = f"{state.words}, not over after {_END_SECS:g} s; {why}"
                raise HostError(f"{self.title} job {job_id}: {words}")
            time.sleep(_HURRY_SECS)
            state = self.poll(job_id)
        return first


class _Ending:
    """What is asked of the scheduler until a job has ended, in whatever state it is seen.

    A job may start, end or return to the queue at any moment, also between a question to the
    scheduler and the request that follows from its answer. So requests follow from every answer.

    Attributes:
      urgency: how urgently the job is to end; 0 if it is to go on.
    """

    def __init__(self, backend: Batch, urgency: int = 0) -> None:
        self._backend, self.urgency = backend, urgency
        self._is_asked = False  # whether the script, in its present start, has been

    def ask(self, job_id: str, state: JobState) -> str:
        """Makes the request that the latest answer calls for; returns why it was refused, or ""."""
        if state.is_pending or state.is_ending:
            self._is_asked = False  # if it is requeued, another script starts
        saves = self.urgency == _SAVE and not state.is_pending
        if not self.urgency or state.is_ending or (saves and self._is_asked):
            return ""
        try:
            self._backend.end(job_id, saves=saves)
        except LaunchError as error:  # it may have ended or begun since the answer
            return str(error)
        self._is_asked = saves
        return ""


class Follower:
    """Follows one job: shows its states, ends it, and says how it ended.

    Args:
      backend: the scheduler.
      job_id: the job's id there.
      folder: the run's folder, to which the job writes.
      display: shows the job's progress to the user.
    """

    def __init__(self, backend: Batch, job_id: str, folder: RunFolder, display: Display) -> None:
        self._backend, self._job_id = backend, job_id
        self._name = f"{backend.title} job {job_id}"
        self._folder, self._display = folder, display
        self._output = Log(backend.output_path(folder))
        self._state, self._answers, self._asked_at = JobState(""), True, -math.inf
        self._ending_since = math.inf  # the scheduler says so, though the job has written its end
        self._ending, self._stops = _Ending(backend), list[int]()

    def step(self, now: float, stops: Sequence[int]) -> Optional[Outcome]:
        """Does what is due at a time; returns how the job ended, once that is known.

        Args:
          now: the time, by time.monotonic.
          stops: the signals so far that ask for the end. The first one asks the tasks to save and
            end, a second one cancels the job; a pending job is cancelled at once. SIGHUP ends only
            the following.
        """
        status = self._folder.status()
        self._show_output()
        for signum in stops[len(self._stops) :]:
            if signum == signal.SIGHUP:
                goes_on = "is asked to end" if self._stops else "goes on"
                words = f"not followed any more; {self._name} {goes_on}"
                return Outcome(128 + signum, words, cause=Cause.USER)
            self._stops.append(signum)
            self._ending.urgency = min(len(self._stops), _CANCEL)
            self._display.note(f"{signal.Signals(signum).name}: stopping {self._name}")
            self._asked_at = -math.inf  # the last answer may be old
        hurries = self._stops or status.get("exit_code") is not None
        if now < self._asked_at + (_HURRY_SECS if hurries else _WAIT_SECS):
            return None
        self._asked_at = now
        try:
            state = self._backend.poll(self._job_id)
        except HostError as error:
            if self._answers:
                self._display.note(f"{error}; the job goes on")
            self._answers = False
            return None
        self._answers = True
        return self._take(state, now)

    def _take(self, state: JobState, now: float) -> Optional[Outcome]:
        """Acts on the scheduler's answer; returns how the job ended if it is over."""
        status = self._folder.status()
        before, self._state = self._state, state
        has_end = status.get("exit_code") is not None
        is_late = has_end and state.is_ending
        self._ending_since = min(self._ending_since, now) if is_late else math.inf
        if state.is_over or now >= self._ending_since + _CLEAR_UP_SECS:  # as when a node is down
            return self._over()
        if state.words != before.words and not state.is_ending:
            self._display.note(f"{self._name}: {state.words}")
        refusal = self._ending.ask(self._job_id, state)
        if refusal:
            self._display.note(refusal)
        return None

    def _show_output(self, *, final: bool = False) -> None:
        """Shows new lines of the batch script."""
        for line in self._output.lines(final=final):
            self._display.note(line.text)

    def _over(self) -> Outcome:
        """Shows what is left, and writes how the job ended."""
        self._show_output(final=True)
        status = self._folder.status()
        if self._stops and status.get("exit_code") in (None, 128 + signal.SIGTERM):
            signum, details = self._stops[0], tuple(status.get("details", ()))
            words = f"stopped by {signal.Signals(signum).name}"
            outcome = Outcome(128 + signum, words, details=details, cause=Cause.USER)
        else:
            output = self._backend.output_path(self._folder)
            outcome = how_it_ended(self._backend.title, self._job_id, self._state, status, output)
        self._folder.write_end(outcome)
        return outcome


def how_it_ended(title: str, job_id: str, ended: JobState, status: Record, output: Path) -> Outcome:
    """Returns how a job ended that this launcher did not stop.

    Args:
      title: what people call the scheduler.
      job_id: the job's id there.
      ended: the last answer about the job.
      status: the content of the run's status file; it has no exit code if the job could not write
        its end. Then the last lines of its output are shown as details.
      output: the file with the output of the batch script.
    """
    if status.get("exit_code") is not None:
        cause, why = read_cause(status), ended.why
        if cause is Cause.PLATFORM:
            cause, why = ended.cause or cause, why or f"it ended the job; state {ended.words}"
        reason = f"{status['reason']} ({title}: {why})" if why else str(status["reason"])
        details = tuple(status.get("details", ()))
        return Outcome(int(status["exit_code"]), reason, details=details, cause=cause)
    why = ended.why or f"it ended as {ended.words}, exit code {ended.exit_code}"
    lines = [line.text for line in Log(output).lines(final=True) if line.text.strip()]
    log = f"  log: {output}"
    if not lines:
        log += " is empty or not there; do the nodes share that folder? see --state-dir"
    return Outcome(
        124 if ended.cause is Cause.TIME_LIMIT else ended.exit_code or 1,
        f"{title} job {job_id}: {why}",
        details=(*(f"  | {line}" for line in lines[-_LAST_LINES:]), log),
        cause=ended.cause or Cause.TASK_FAILED,
    )


def description(cluster: Cluster) -> str:
    """Returns the cluster as the text of a cluster file, one key on each line.

    It has every key that a cluster file can set for hosts and tasks, except that the values of
    `environment` come from the batch script's own environment.
    """
    counts = {kind: cluster.count(kind) for kind in TASK_TYPES if cluster.count(kind)}
    content: dict[str, Any] = {
        "backend": cluster.backend,
        "tasks": counts,
        "nodes": len(cluster.hosts),
    }
    content |= {**said(cluster.hosts[0]), **said(cluster), "limits": said(cluster.limits)}
    content.pop("environment", None)
    # JSON is valid YAML, and json.dumps writes each value on one line.
    return "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items()
    )
