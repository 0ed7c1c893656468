"""What Slurm's commands say of a job, and how they are asked to end it."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from launch.connect.tools import await_end, call, last_line
from launch.errors import HostError, LaunchError, NotHereError
from launch.record.result import ExitReason

SAVE, CANCEL = 1, 2  # how urgently a job is to end
_ANSWER_SECS = 20.0
_END_SECS = 150.0  # Slurm gives a job that it ends 30 s between SIGTERM and SIGKILL, by default

# Slurm's state of an ended job -> (reason of the end, what the state means, with a hint).
ENDS: dict[str, tuple[Optional[ExitReason], str]] = {
    "CANCELLED": (ExitReason.CANCELLED, "cancelled in Slurm"),
    "TIMEOUT": (ExitReason.TIME_LIMIT, "over its time limit; raise `time:` under `slurm:`"),
    "PREEMPTED": (ExitReason.PREEMPTED, "preempted by another job; `requeue: true` lets it go on"),
    "NODE_FAIL": (
        ExitReason.HOST_LOST,
        "a node has failed; `requeue: true` lets it go on elsewhere",
    ),
    "OUT_OF_MEMORY": (ExitReason.TASK_FAILED, "out of memory; raise `mem:` under `slurm:`"),
    "DEADLINE": (ExitReason.TIME_LIMIT, "over its deadline in Slurm"),
}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_LIVE = {"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"}
_LIVE |= {"COMPLETING", "POWER_UP_NODE", "UPDATE_DB"} | _WAITING
_NO_ANSWER = "Unable to contact|Socket timed out|Connection refused|configuration source"


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
      why: the same in words, with a hint.
    """

    words: str
    is_pending: bool = False
    is_ending: bool = False
    is_over: bool = False
    exit_code: int = 0
    cause: Optional[ExitReason] = None
    why: str = ""


class SlurmJob:
    """One job in Slurm.

    A job may start, end or return to the queue at any moment, also between a question to the
    scheduler and the request that follows from its answer. So requests follow from every answer.

    Attributes:
      title: what to call the job.
      urgency: how urgently it is to end; 0 if it is to go on.
    """

    def __init__(self, job_id: str) -> None:
        self.id, self.title, self.urgency = job_id, f"Slurm job {job_id}", 0
        self._is_asked = False  # whether the script, in its present start, has been

    def poll(self) -> JobState:
        """Returns what scontrol says of it; what sacct says, once Slurm has forgotten it."""
        return state_of(show(self.id))

    def cancel(self, *, saves: bool) -> None:
        """Sends SIGTERM to the batch script alone, or ends the job, in whatever state it is."""
        ask("scancel", *(["--batch", "--signal=TERM"] if saves else []), self.id)

    def state(self) -> str:
        """Returns the job's id and state in words; "" once it is over."""
        found = self.poll()
        return "" if found.is_over else f"{self.title}: {found.words}"

    def end(self, *, now: bool) -> list[str]:
        """Ends the job, also if it is requeued meanwhile, and waits; see `RemoteJob`."""
        self.urgency = CANCEL if now else SAVE
        first = self.poll()

        def left() -> str:
            state = self.poll()
            why = "" if state.is_over else self.ask_to_end(state)
            return "" if state.is_over else f"{self.title}: {state.words}; {why}".rstrip("; ")

        await_end(left, _END_SECS)
        return [] if first.is_over else [f"{self.title}: cancelled; it was {first.words}"]

    def ask_to_end(self, state: JobState) -> str:
        """Makes the request that the latest answer calls for; returns why it was refused, or ""."""
        if state.is_pending or state.is_ending:
            self._is_asked = False  # if it is requeued, another script starts
        saves = self.urgency == SAVE and not state.is_pending
        if not self.urgency or state.is_ending or (saves and self._is_asked):
            return ""
        try:
            self.cancel(saves=saves)
        except LaunchError as error:  # it may have ended or begun since the answer
            return str(error)
        self._is_asked = saves
        return ""


def state_of(job: Mapping[str, str]) -> JobState:
    """Returns the state that the fields of `show` describe."""
    state = job.get("JobState", "forgotten")
    is_preempted = "PreemptTime" in job and state not in ENDS
    cause, why = ENDS.get("PREEMPTED" if is_preempted else state, (None, ""))
    code = re.fullmatch(r"(\d{1,3}):(\d{1,3})", job.get("ExitCode", ""))  # the second: a signal
    return JobState(
        f"{state} {job.get('NodeList') or job.get('Reason', '')}".strip(),
        is_pending=state in _WAITING,
        is_ending=state == "COMPLETING",
        is_over=state not in _LIVE,
        exit_code=0 if code is None else int(code[1]) or int(code[2]) and 128 + int(code[2]),
        cause=cause,
        why=why,
    )


def show(job_id: str) -> dict[str, str]:
    """Returns the fields of a job as scontrol shows them, or sacct once Slurm has forgotten it.

    They are {} if both know nothing of it.

    Raises:
      HostError: Slurm does not answer, or says nothing of the job.
    """
    try:
        shown = ask("scontrol", "--oneliner", "show", "job", job_id).stdout
        found = fields(shown.partition("\n")[0])  # of a heterogeneous job, its first part
    except HostError as error:
        if "Invalid job id" not in str(error):
            raise
        return _remembered(job_id)
    if "JobState" not in found:
        raise HostError(f"scontrol: job {job_id} has no state in its answer")
    return found


def _remembered(job_id: str) -> dict[str, str]:
    words = ["--allocations", "--noheader", "--parsable2", "--format=State,NodeList,ExitCode"]
    try:
        found = ask("sacct", f"--jobs={job_id}", *words).stdout.strip().split("|")
    except HostError:  # there is no accounting
        return {}
    state = found[0].partition(" ")[0]  # CANCELLED by 1000
    is_known = len(found) == 3 and state not in _LIVE  # accounting may lag behind
    return dict(zip(("JobState", "NodeList", "ExitCode"), (state, *found[1:]))) if is_known else {}


def fields(line: str) -> dict[str, str]:
    """Returns the fields `name=value` of a line of scontrol that have a value."""
    found = re.findall(r"(?:^|\s)(\w+)=(\S+)", line)
    return {name: value for name, value in found if value not in ("(null)", "None", "N/A")}


def ask(
    *command: str,
    given: str = "",
    env: Optional[Mapping[str, str]] = None,
    secs: float = _ANSWER_SECS,
) -> "subprocess.CompletedProcess[str]":
    """Runs a command of Slurm to its end; returns its result.

    Raises:
      HostError: the command is not installed, Slurm does not answer, or it refuses the request.
      LaunchError: it refuses the job of `sbatch`.
    """
    tool = command[0]
    done = call(command, secs, "run this on a login node of the cluster", given=given, env=env)
    if done.returncode == 0:
        return done
    last = last_line(done.stderr, f"exit code {done.returncode}")
    said = f"{tool}: {re.sub(r'^(.*(failed|failure)|[a-z]+: (error|fatal)): ', '', last)}"
    if no_answer := re.search(_NO_ANSWER, done.stderr):
        error = NotHereError if no_answer[0] == "configuration source" else HostError
        raise error(f"{said}; does `sinfo` work here?")
    if tool == "sbatch":
        raise LaunchError(f"{said}; `sinfo` lists what there is, `slurm:` asks for it")
    raise HostError(said)
