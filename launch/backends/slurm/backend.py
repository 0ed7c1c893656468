"""The slurm backend: Slurm chooses the nodes, and the batch job itself runs the tasks on them."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Optional

from launch.backends.base import Backend
from launch.backends.slurm import job_watch
from launch.backends.slurm.job_watch import CANCEL, SAVE, Ending, JobState, JobWatch, output_path
from launch.backends.slurm.script import (
    NAME,
    SlurmSettings,
    arranged,
    options,
    ps_options,
    script,
    settings_of,
)
from launch.cluster.host_list import ROOT
from launch.cluster.model import FREE_PORTS, Cluster
from launch.cluster.show import Document
from launch.cluster.tasks import PACKAGES, Job, make_job, script_of
from launch.connect.tools import call, last_line
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome, end_record
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import passed_values
from launch.supervise.run_loop import stop_signals
from launch.supervise.task_state import TaskState

_SUBMIT_SECS = 60
_ANSWER_SECS = 20
_LOOK_SECS = 0.5  # between two looks at what the job has written
_END_SECS = 150.0  # Slurm gives a job that it ends 30 s between SIGTERM and SIGKILL, by default

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
_LIVE |= {"COMPLETING", "POWER_UP_NODE", "UPDATE_DB"} | _WAITING
_NO_ANSWER = "Unable to contact|Socket timed out|Connection refused|configuration source"


class Slurm(Backend):
    """Runs all tasks in one batch job of Slurm, which goes on without its launcher."""

    name = "slurm"
    settings = SlurmSettings
    chooses_hosts = True
    default_ports = FREE_PORTS
    is_lasting = True

    def arranged(self, cluster: Cluster) -> Cluster:
        """Returns the cluster with the ps on nodes of their own if `ps:` asks for such nodes."""
        return arranged(cluster)

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

    def submit(self, job: Job, folder: RunFolder, root: Path = ROOT) -> str:
        """Submits the batch script, with the variables that the tasks get; returns the job's id."""
        passed_values(job.cluster.passed)
        path, output = folder.path / f"{NAME}.sbatch", output_path(folder)
        try:
            for file in (path, output):
                file.touch(mode=0o600)  # only its owner may read it
            path.write_text(script(job, root), encoding="utf-8")
        except OSError as error:
            raise HostError(f"{path}: {error.strerror}; --state-dir names another place") from None
        named = f"--job-name={_name(folder.run_id, job.cluster.name)}"
        words = ["--parsable", named, f"--output={str(output).replace('%', '%%')}", "--export=ALL"]
        # The script holds no value of a variable: the job gets them from the environment of sbatch.
        # If this launcher runs in a Slurm job, the variables of that job must not get into it.
        kept = (n for n in os.environ if not n.startswith("SLURM_") or n == "SLURM_CONF")
        env = {**{name: os.environ[name] for name in kept}, **dict(job.cluster.environment)}
        of_ps = ps_options(job.cluster)
        last = ([":", *of_ps] if of_ps else []) + [str(path), f"--run={folder.path.absolute()}"]
        # Options on the command line take precedence over the user's SBATCH_ variables.
        done = run("sbatch", *options(job.cluster), *words, *last, env=env, secs=_SUBMIT_SECS)
        return done.stdout.strip().split(";")[0]

    def find(self, record: Record) -> str:
        """Returns the id of this user's job that has the run's name."""
        name = _name(record["run"], record.get("name"))
        words = ("squeue", "--noheader", "--me", f"--name={name}", "--format=%i")
        return run(*words).stdout.partition("\n")[0]

    def poll(self, job_id: str) -> JobState:
        """Returns what scontrol says of a job; what sacct says, once Slurm has forgotten it."""
        return state_of(show(job_id))

    def end(self, job_id: str, *, saves: bool) -> None:
        """Sends SIGTERM to the batch script alone, or cancels the job, in whatever state it is."""
        run("scancel", *(["--batch", "--signal=TERM"] if saves else []), job_id)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Submits the batch script, and follows the job to its end."""
        with stop_signals() as stops:
            # A signal waits: only the answer names the job.
            job_id = self.submit(*_with_snapshot(job, folder, display))
            display.note(
                f"Slurm job {job_id}: submitted; should this launcher end, it goes on: "
                f"stop --run {folder.run_id}"
            )
            if not folder.status()["tasks"]:  # until the job writes its own
                tasks = [vars(TaskState(task).row()) for task in job.tasks]
                folder.write_status({"time": time.time(), **end_record(None), "tasks": tasks})
            watch = JobWatch(self, job_id, folder, display)
            while (outcome := watch.step(time.monotonic(), stops)) is None:
                time.sleep(_LOOK_SECS)
            return outcome

    def going_on(self, record: Record) -> str:
        """Returns the id and state of the run's job in words; an empty string once it is over."""
        job_id, state = self._found(record)
        return "" if state.is_over else f"Slurm job {job_id}: {state.words}"

    def stop(self, record: Record, *, now: bool) -> None:
        """Ends the run's job, and waits for its end; with `now`, the scheduler ends its tasks."""
        self._end(record, CANCEL if now else SAVE)

    def clean(self, record: Record) -> list[str]:
        """Cancels the run's job if it is not over, and waits for its end."""
        job_id, state = self._end(record, CANCEL)
        cancelled = f"Slurm job {job_id}: cancelled; it was {state.words}"
        return [] if state.is_over else [cancelled]

    def _found(self, record: Record) -> tuple[str, JobState]:
        job_id = self.find(record)
        return job_id, self.poll(job_id) if job_id else JobState("", is_over=True)

    def _end(self, record: Record, urgency: int) -> tuple[str, JobState]:
        """Ends the run's job, also if it is requeued meanwhile; returns it as it was."""
        deadline, ending = time.monotonic() + _END_SECS, Ending(self, urgency)
        first = job_id, state = self._found(record)
        while not state.is_over:
            why = ending.ask(job_id, state)
            if time.monotonic() > deadline:
                words = f"{state.words}, not over after {_END_SECS:g} s; {why}"
                raise HostError(f"Slurm job {job_id}: {words}")
            time.sleep(job_watch.HURRY_SECS)
            state = self.poll(job_id)
        return first


def _with_snapshot(job: Job, folder: RunFolder, display: Display) -> tuple[Job, RunFolder, Path]:
    """Copies what a job runs: the launcher, the packages, and the scripts beside the program.

    Returns:
      The job with the copied program, the run's folder, and the folder that has the launcher.

    Raises:
      HostError: a file cannot be read or written.
    """
    cluster, root = job.cluster, folder.path.absolute() / "code"
    workdir, program = Path(cluster.hosts[0].workdir).expanduser(), script_of(cluster)
    if program is None or not settings_of(cluster).snapshot:
        return job, folder, ROOT
    if not (workdir / program).is_file():
        why = f"{workdir} has no {program} here, so the job runs what is there when it starts"
        display.note(f"no snapshot of the code: {why}")
        return job, folder, ROOT
    try:
        for name in ("launch", *PACKAGES):
            has_own = name != "launch" and (workdir / name).is_dir()
            no_cache = shutil.ignore_patterns("__pycache__")
            shutil.copytree((workdir if has_own else ROOT) / name, root / name, ignore=no_cache)
        for path in [workdir / program, *(workdir / program).parent.glob("*.py")]:
            shutil.copy(path, root)
    except (OSError, shutil.Error) as error:
        way_out = "`snapshot: false` under `slurm:` runs the code as it is when the job starts"
        raise HostError(f"no copy of the code in {workdir}: {error}; {way_out}") from None
    copied = replace(cluster, program=str(root / os.path.basename(program)))
    return make_job(copied, job.arguments), folder, root


def _name(run_id: str, name: Optional[str]) -> str:
    return f"{name or NAME}-{run_id}"


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
        shown = run("scontrol", "--oneliner", "show", "job", job_id).stdout
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
        found = run("sacct", f"--jobs={job_id}", *words).stdout.strip().split("|")
    except HostError:  # there is no accounting
        return {}
    state = found[0].partition(" ")[0]  # CANCELLED by 1000
    is_known = len(found) == 3 and state not in _LIVE  # accounting may lag behind
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
