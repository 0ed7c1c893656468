"""Runs Slurm's commands, parses their answers, and explains their refusals."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from launch.backends.tool_errors import last_line, meaning
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause

_ANSWER_SECS = 60

# A job's last state in Slurm -> the cause of its end, what that means, and the way out.
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


@dataclass(frozen=True)
class JobState:
    """What Slurm knows about a job.

    Attributes:
      state: Slurm's name of the state (PENDING, RUNNING, COMPLETING and so on); `forgotten` for a
        job that Slurm does not know any more.
      reason: why the job is pending, or why it ended; "" for none.
      nodes: the job's nodes in Slurm's notation (`m[1-2]`); "" before they are chosen.
      exit_code: the batch script's exit code; 128 + n for signal n.
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
        """Whether the job waits in the queue, for its first start or for another one."""
        return self.state in _WAITING

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and Slurm has cleaned up its nodes."""
        return self.state not in _LIVE

    @property
    def words(self) -> str:
        """The state with the nodes or the reason: `RUNNING m[1-2]`, `PENDING Resources`."""
        return f"{self.state} {self.nodes or self.reason}".strip()


# The states in which a job can stay for long; any other state counts as an end.
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_LIVE = _WAITING | {
    "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "STAGE_OUT", "SIGNALING", "RESIZING",
    "STOPPED",
}  # fmt: skip


def submit(
    options: Sequence[str], script: str, words: Sequence[str], env: Mapping[str, str]
) -> str:
    """Submits a batch script.

    Args:
      options: options for sbatch's command line, which overrides the user's SBATCH_ variables.
      script: the path of the batch script.
      words: the arguments of the batch script.
      env: the environment of sbatch, from which Slurm makes the job's environment.

    Returns:
      The job's id.

    Raises:
      LaunchError: Slurm refuses the job; the message says why.
      HostError: Slurm does not answer.
    """
    return _run(["sbatch", "--parsable", *options, script, *words], env).strip().split(";")[0]


def test(options: Sequence[str], script: str) -> str:
    """Returns what sbatch says about when and where a job would start; LaunchError if never."""
    return _run(["sbatch", "--test-only", *options, script]).strip()


def show(job: str) -> JobState:
    """Asks Slurm for the state of one of this user's jobs.

    Raises:
      HostError: Slurm does not answer.
    """
    try:
        text = _ask("scontrol", "--oneliner", "show", "job", job)
    except HostError:
        # scontrol has one exit code for all failures, so ask whether Slurm still knows the job.
        if job in _ask("squeue", "--noheader", "--me", "--states=all", "--format=%i").split():
            raise
        return JobState("forgotten")
    code, signum = (int(number) for number in (field(text, "ExitCode") or "0:0").split(":"))
    return JobState(
        state=field(text, "JobState"),
        reason=field(text, "Reason"),
        nodes=field(text, "NodeList"),
        exit_code=128 + signum if signum else code,
        time_limit=field(text, "TimeLimit"),
        is_preempted=bool(field(text, "PreemptTime")),
        may_requeue=field(text, "Requeue") == "1",
    )


def field(text: str, name: str) -> str:
    """Returns the value of `name=` in a line that scontrol prints; "" for none."""
    found = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return "" if found is None else _value(found[1])


def _value(text: str) -> str:
    return "" if text in ("(null)", "None", "N/A") else text


def jobs_named(name: str) -> dict[str, JobState]:
    """Returns the states of this user's jobs of that name that are not over, by job id.

    Raises:
      HostError: Slurm does not answer.
    """
    text = _ask("squeue", "--noheader", "--me", f"--name={name}", "--format=%i|%T|%N|%r")
    found = {}
    for line in text.splitlines():
        job, state, nodes, reason = line.split("|", 3)
        found[job] = JobState(state, _value(reason), _value(nodes))
    return found


def addresses() -> list[tuple[str, str]]:
    """Returns (name, address) of each node in the allocation that this process runs in.

    Raises:
      HostError: Slurm does not answer.
    """
    nodes = os.environ["SLURM_JOB_NODELIST"]
    names = _ask("scontrol", "show", "hostnames", nodes).split()
    text = _ask("scontrol", "--oneliner", "show", "node", nodes)
    known = {field(line, "NodeName"): field(line, "NodeAddr") for line in text.splitlines()}
    return [(name, known.get(name) or name) for name in names]


def ask_to_end(job: str) -> None:
    """Sends SIGTERM to the batch script alone, which then stops the tasks so that they save."""
    _run(["scancel", "--batch", "--signal=TERM", job])


def cancel(job: str) -> None:
    """Cancels a job in any state: Slurm sends SIGTERM to all its processes, later SIGKILL."""
    _run(["scancel", job])


def requeue(job: str) -> None:
    """Returns a job to the queue, which ends its processes."""
    _run(["scontrol", "requeue", job])


def _ask(*command: str) -> str:
    """Returns the output of a query; raises HostError for a refusal, which is no user's mistake."""
    try:
        return _run(command)
    except LaunchError as error:
        raise HostError(str(error)) from None


def _run(command: Sequence[str], env: Optional[Mapping[str, str]] = None) -> str:
    """Returns a command's standard output, or its standard error if that is empty.

    Raises:
      HostError: the command is not installed, or Slurm does not answer.
      LaunchError: the command failed for another reason; the message says why.
    """
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECS,
            check=False,
            start_new_session=True,  # Ctrl-C is for the launcher only
        )
    except FileNotFoundError:
        raise HostError(
            f"no {command[0]} on PATH here; run this on a login node of the cluster"
        ) from None
    except subprocess.TimeoutExpired:
        raise HostError(f"{command[0]}: no answer within {_ANSWER_SECS} s") from None
    if done.returncode == 0:
        return done.stdout or done.stderr
    last = last_line(done.stderr, f"exit code {done.returncode}")
    words = re.sub(r"^\w+: (error|fatal): ", "", last)
    said = f"{command[0]}: {re.sub(r'^.*(failed|failure): ', '', words)}"
    no_answer = meaning("slurmctld", done.stderr)
    if no_answer is not None:
        raise HostError(f"{said}; {no_answer}")
    known = meaning("slurm", done.stderr)
    raise LaunchError(f"{said}: {known}" if known else said)
