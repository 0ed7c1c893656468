"""The slurm backend: Slurm chooses the nodes, and the batch job itself runs the tasks on them."""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Optional

from launch.backends.batch import Batch, JobState
from launch.backends.slurm.script import NAME, SlurmSettings, options, script
from launch.backends.tools import call, last_line
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause
from launch.record.run_folder import RunFolder
from launch.supervise.run import passed_values

_SUBMIT_SECS = 60
_ANSWER_SECS = 20

# Slurm's state of an ended job -> (cause of the end, what the state means, with the way out).
ENDS: dict[str, tuple[Optional[Cause], str]] = {
    "CANCELLED": (Cause.CANCELLED, "cancelled in Slurm"),
    "TIMEOUT": (Cause.TIME_LIMIT, "over its time limit; raise `time:` under `slurm:`"),
    "PREEMPTED": (Cause.PREEMPTED, "preempted by another job; `requeue: true` lets it go on"),
    "NODE_FAIL": (Cause.HOST_LOST, "a node has failed; `requeue: true` lets it go on elsewhere"),
    "OUT_OF_MEMORY": (Cause.TASK_FAILED, "out of memory; raise `mem:` under `slurm:`"),
    "DEADLINE": (Cause.TIME_LIMIT, "over its deadline in Slurm"),
}
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_LIVE = {"CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"}
_LIVE |= {"COMPLETING", "POWER_UP_NODE", "UPDATE_DB"}
_NO_ANSWER = "Unable to contact|Socket timed out|Connection refused|configuration source"


class Slurm(Batch):
    """Runs all tasks in one batch job of Slurm."""

    name = "slurm"
    title = "Slurm"
    settings = SlurmSettings

    def plan(self, job: Job) -> list[Document]:
        """Returns the batch script."""
        return [Document(f"{NAME}.sbatch", script(job))]

    def check(self, job: Job) -> list[str]:
        """Returns what sbatch says about when and where the job would start."""
        passed_values(job.cluster.passed)
        with tempfile.NamedTemporaryFile("w", suffix=".sbatch", encoding="utf-8") as file:
            file.write(script(job))
            file.flush()
            done = run("sbatch", "--test-only", *options(job.cluster), file.name)
        said = (done.stdout or done.stderr).strip()
        return [said, "Slurm chooses the nodes later: their code and data could not be looked at"]

    def submit(self, job: Job, folder: RunFolder) -> str:
        """Submits the batch script, with the variables that the tasks get; returns the job's id."""
        passed_values(job.cluster.passed)
        path, output = folder.path / f"{NAME}.sbatch", self.output_path(folder)
        try:
            for file in (path, output):
                file.touch(mode=0o600)  # only its owner may read it
            path.write_text(script(job), encoding="utf-8")
        except OSError as error:
            raise HostError(f"{path}: {error.strerror}; --state-dir names another place") from None
        said = f"--output={str(output).replace('%', '%%')}"
        words = ["--parsable", f"--job-name={_name(folder.run_id)}", said, "--export=ALL"]
        # The script holds no value of a variable: the job gets them from the environment of sbatch.
        # If this launcher runs in a Slurm job, the variables of that job must not get into it.
        kept = (n for n in os.environ if not n.startswith("SLURM_") or n == "SLURM_CONF")
        env = {**{name: os.environ[name] for name in kept}, **dict(job.cluster.environment)}
        last = (str(path), f"--run={folder.path.absolute()}")
        # Options on the command line take precedence over the user's SBATCH_ variables.
        done = run("sbatch", *options(job.cluster), *words, *last, env=env, secs=_SUBMIT_SECS)
        return done.stdout.strip().split(";")[0]

    def find(self, run_id: str) -> str:
        """Returns the id of this user's job that has the run's name."""
        words = ("squeue", "--noheader", "--me", f"--name={_name(run_id)}", "--format=%i")
        return run(*words).stdout.partition("\n")[0]

    def poll(self, job_id: str) -> JobState:
        """Returns what scontrol says of a job; what sacct says, once Slurm has forgotten it."""
        return state_of(show(job_id))

    def end(self, job_id: str, *, saves: bool) -> None:
        """Sends SIGTERM to the batch script alone, or cancels the job, in whatever state it is."""
        run("scancel", *(["--batch", "--signal=TERM"] if saves else []), job_id)


def _name(run_id: str) -> str:
    return f"{NAME}-{run_id}"


def _is_over(state: str) -> bool:
    return state not in _WAITING | _LIVE


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
        is_over=_is_over(state),
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
        found = fields(run("scontrol", "--oneliner", "show", "job", job_id).stdout)
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
        found = run("sacct", f"--jobs={job_id}", *words).stdout.strip().split("|")
    except HostError:  # there is no accounting
        return {}
    state = found[0].partition(" ")[0]  # CANCELLED by 1000
    is_known = len(found) == 3 and _is_over(state)  # accounting may lag behind
    return dict(zip(("JobState", "NodeList", "ExitCode"), (state, *found[1:]))) if is_known else {}


def fields(line: str) -> dict[str, str]:
    """Returns the fields `name=value` of a line of scontrol that have a value."""
    found = re.findall(r"(?:^|\s)(\w+)=(\S+)", line)
    return {name: value for name, value in found if value not in ("(null)", "None", "N/A")}


def run(
    *command: str, env: Optional[Mapping[str, str]] = None, secs: float = _ANSWER_SECS
) -> "subprocess.CompletedProcess[str]":
    """Runs a command of Slurm to its end; returns its result.

    Raises:
      HostError: the command is not installed, Slurm does not answer, or it refuses the request.
      LaunchError: it refuses the job of `sbatch`.
    """
    tool = command[0]
    done = call(command, secs, "run this on a login node of the cluster", env=env)
    if done.returncode == 0:
        return done
    last = last_line(done.stderr, f"exit code {done.returncode}")
    said = f"{tool}: {re.sub(r'^(.*(failed|failure)|[a-z]+: (error|fatal)): ', '', last)}"
    if re.search(_NO_ANSWER, done.stderr):
        raise HostError(f"{said}; does `sinfo` work here?")
    if tool == "sbatch":
        raise LaunchError(f"{said}; `sinfo` lists what there is, `slurm:` asks for it")
    raise HostError(said)
