"""Slurm's commands: submits a job, asks what has become of it, and asks it to end."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from launch.agent import processes
from launch.backends.tool_errors import last_line, meaning
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause

_ANSWER_SECS = 60

# Slurm's state of an ended job -> (cause of the end, what the state means, with the way out).
ENDS = {
    "CANCELLED": (Cause.CANCELLED, "cancelled in Slurm"),
    "TIMEOUT": (
        Cause.TIME_LIMIT,
        "over Slurm's time limit of {time_limit}; raise `time:` under `slurm:`",
    ),
    "PREEMPTED": (
        Cause.PREEMPTED,
        "preempted by another job; `requeue:` under `slurm:` lets it go on later",
    ),
    "NODE_FAIL": (
        Cause.HOST_LOST,
        "a node of {nodes} has failed; `requeue:` under `slurm:` lets it go on elsewhere",
    ),
    "OUT_OF_MEMORY": (Cause.TASK_FAILED, "out of memory; raise `mem:` under `slurm:`"),
    "DEADLINE": (Cause.TIME_LIMIT, "over its deadline in Slurm"),
    "BOOT_FAIL": (Cause.HOST_LOST, "{nodes} could not be started"),
}

# All states in which a job can stay for long. A job in any other state counts as ended.
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_LIVE = _WAITING | {
    "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING",
    "STOPPED",
}  # fmt: skip


@dataclass(frozen=True)
class JobState:
    """What Slurm knows about a job.

    Attributes:
      state: PENDING, RUNNING, COMPLETING and so on, as Slurm writes it; `forgotten` for a job that
        Slurm does not know any more.
      reason: why the job is pending, or why it ended; "" if Slurm gives no reason.
      nodes: the job's nodes in Slurm's notation (`m[1-2]`); "" before Slurm has chosen them.
      exit_code: the exit code of the batch script; 128 + n for signal n.
      time_limit: the job's time limit in Slurm's notation.
      is_preempted: whether Slurm has preempted the job for another one.
      may_requeue: whether the job may return to the queue.
    """

    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: int = 0
    time_limit: str = ""
    is_preempted: bool = False
    may_requeue: bool = False

    @property
    def is_pending(self) -> bool:
        """Whether the job waits in the queue, before its start or after a requeue."""
        return self.state in _WAITING

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and Slurm has cleaned up after it."""
        return self.state not in _LIVE

    @property
    def words(self) -> str:
        """The state and the nodes, or else the reason: `RUNNING m[1-2]`, `PENDING Resources`."""
        return f"{self.state} {self.nodes or self.reason}".strip()


def sbatch(*words: str, env: Optional[Mapping[str, str]] = None) -> str:
    """Runs sbatch; returns what it says.

    Args:
      *words: options, which take precedence over the user's SBATCH_ variables, the script, and the
        script's own arguments.
      env: the environment of sbatch, from which the job gets its own; None for this process's.

    Raises:
      LaunchError: Slurm refuses the job; the message says why.
      HostError: Slurm does not answer.
    """
    done = _run(["sbatch", *words], env)
    return (done.stdout or done.stderr).strip()


def show(job: str) -> JobState:
    """Returns Slurm's answer about the job of this id; HostError if it does not answer."""
    try:
        text = _run(["scontrol", "--oneliner", "show", "job", job]).stdout
    except LaunchError as error:
        if "Invalid job id" not in str(error):
            raise HostError(str(error)) from None
        return _remembered(job)
    state = field(text, "JobState")
    if not state:
        raise HostError(f"scontrol: job {job} has no state in {' '.join(text.split())[:200]!r}")
    return JobState(
        state=state,
        reason=field(text, "Reason"),
        nodes=field(text, "NodeList"),
        exit_code=_exit_code(field(text, "ExitCode")),
        time_limit=field(text, "TimeLimit"),
        is_preempted=bool(field(text, "PreemptTime")),
        may_requeue=field(text, "Requeue") == "1",
    )


def _remembered(job: str) -> JobState:
    """Returns what Slurm's accounting, if there is one, says of a job that Slurm has forgotten."""
    words = ["--allocations", "--noheader", "--parsable2", "--format=State,NodeList,ExitCode"]
    try:
        found = _run(["sacct", f"--jobs={job}", *words]).stdout.strip().split("|")
    except LaunchError:
        found = []
    if len(found) != 3:
        return JobState("forgotten")
    state, nodes, code = found
    known = JobState(state.partition(" ")[0], nodes=nodes, exit_code=_exit_code(code))
    return known if known.is_over else JobState("forgotten")  # Accounting may lag behind.


def _exit_code(text: str) -> int:
    """Returns the exit code of `CODE:SIGNAL`; 0 if Slurm gives none."""
    found = re.fullmatch(r"([0-9]{1,3}):([0-9]{1,3})", text)
    if found is None:
        return 0
    return 128 + int(found[2]) if int(found[2]) else int(found[1])


def field(text: str, name: str) -> str:
    """Returns the value after `name=` in a line of scontrol's output; "" if there is none."""
    found = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return "" if found is None or found[1] in ("(null)", "None", "N/A") else found[1]


def jobs_named(name: str) -> dict[str, JobState]:
    """Returns this user's jobs of that name that are not over: job's id -> state.

    Raises:
      HostError: Slurm does not answer.
    """
    ids = _ask("squeue", "--noheader", "--me", f"--name={name}", "--format=%i").split()
    states = {job: show(job) for job in ids}
    return {job: state for job, state in states.items() if not state.is_over}


def addresses() -> list[tuple[str, str]]:
    """Returns (name, address) of each node in the allocation that this process runs in.

    Raises:
      LaunchError: this process runs in no allocation.
      HostError: Slurm does not answer.
    """
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise LaunchError("this is no job of Slurm; submit the script: sbatch SCRIPT")
    names = _ask("scontrol", "show", "hostnames", nodes).split()
    text = _ask("scontrol", "--oneliner", "show", "node", nodes)
    known = {field(line, "NodeName"): field(line, "NodeAddr") for line in text.splitlines()}
    return [(name, known.get(name) or name) for name in names]


def ask_to_end(job: str) -> None:
    """Sends SIGTERM to the batch script alone, which ends the tasks in order."""
    _run(["scancel", "--batch", "--signal=TERM", job])


def cancel(job: str) -> None:
    """Cancels a job in any state: Slurm sends SIGTERM to all of its processes, then SIGKILL."""
    _run(["scancel", job])


def requeue(job: str) -> None:
    """Returns a job to the queue, which ends the job's processes."""
    _run(["scontrol", "requeue", job])


def _ask(*command: str) -> str:
    """Runs a query and returns its output.

    Raises:
      HostError: the query fails, which is never a mistake of the user.
    """
    try:
        return _run(command).stdout
    except LaunchError as error:
        raise HostError(str(error)) from None


def _run(
    command: Sequence[str], env: Optional[Mapping[str, str]] = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end; returns its result.

    Raises:
      HostError: the command is not installed, or Slurm does not answer.
      LaunchError: Slurm refuses the request.
    """
    tool = command[0]
    try:
        done = processes.run(command, _ANSWER_SECS, env=env, own_session=True)
    except FileNotFoundError:
        raise HostError(
            f"no {tool} on PATH here; run this on a login node of the cluster"
        ) from None
    except subprocess.TimeoutExpired:
        raise HostError(f"{tool}: no answer within {_ANSWER_SECS} s") from None
    except OSError as error:
        raise HostError(f"{tool}: {error.strerror or error}") from None
    if done.returncode == 0:
        return done
    last = last_line(done.stderr, f"exit code {done.returncode}")
    said = f"{tool}: {re.sub(r'^(.*(failed|failure)|[a-z]+: (error|fatal)): ', '', last)}"
    no_answer = meaning("slurmctld", done.stderr)
    if no_answer is not None:
        raise HostError(f"{said}; {no_answer}")
    known = meaning("slurm", done.stderr)
    raise LaunchError(f"{said}: {known}" if known else said)
