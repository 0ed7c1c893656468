"""The slurm backend: Slurm chooses the nodes, and the batch job itself runs the tasks on them.

The job writes the run's folder, which the nodes share with this machine: the launcher submits the
job, shows what it writes and its states in Slurm, and ends it when the user asks.
"""

import math
import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional

from launch.backends.base import Backend
from launch.backends.slurm import script
from launch.backends.slurm.scheduler import CANCEL, JobState, SlurmJob, ask
from launch.cluster.host_list import ROOT
from launch.cluster.model import FREE_PORTS, Cluster
from launch.cluster.show import Document
from launch.cluster.tasks import PACKAGES, Job, make_job, script_of
from launch.cluster.yaml_section import whole
from launch.connect.host_check import Checked
from launch.errors import HostError, LaunchError
from launch.record.output import LogReader
from launch.record.result import ExitReason, Result
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import allowed_variables
from launch.supervise.run_loop import stop_signals
from launch.supervise.task_state import TaskState, status_of

_SUBMIT_SECS = 60
_LOOK_SECS = 0.5  # between two looks at what the job has written
HURRY_SECS = 1.0  # between two questions to the scheduler while the job starts or ends
_WAIT_SECS = 5.0  # between two questions otherwise: the scheduler serves many users
_CLEAR_UP_SECS = 40.0  # beyond the 30 s that Slurm gives a job to end
_LAST_LINES = 12


class Slurm(Backend):
    """Runs all tasks in one batch job of Slurm, which goes on without its launcher."""

    name = "slurm"
    settings = script.SlurmSettings
    chooses_hosts = True
    default_ports = FREE_PORTS
    job_writes_log = True

    def arranged(self, cluster: Cluster) -> Cluster:
        """Returns the cluster with the ps on nodes of their own, if `ps:` asks for such nodes."""
        of_ps, num_ps = dict(cluster.section(script.SlurmSettings).ps), cluster.count("ps")
        if not of_ps or not num_ps:
            return cluster
        try:
            num_nodes = whole(1, num_ps)(of_ps.get("nodes", "1"))
        except LaunchError as error:
            raise LaunchError(f"slurm.ps: nodes {error}") from None
        hosts = [
            replace(host, roles=tuple(role for role in host.roles if role[0] != "ps"))
            for host in cluster.hosts
            if host.trains
        ]
        for i in range(num_nodes):
            name, roles = f"node{len(hosts)}", (("ps", len(range(i, num_ps, num_nodes))),)
            hosts.append(replace(hosts[0], name=name, address=name, roles=roles, gpus=0))
        return replace(cluster, hosts=tuple(hosts))

    def plan(self, job: Job) -> list[Document]:
        """Returns the batch script."""
        return [Document(f"{script.NAME}.sbatch", script.batch_script(job))]

    def check(self, job: Job) -> Checked:
        """Returns what sbatch says about when and where the job would start."""
        allowed_variables(job.cluster.pass_environment)
        words = ("sbatch", "--test-only", *script.options(job.cluster)[0])
        done = ask(*words, given=script.batch_script(job))
        said = (done.stdout or done.stderr).strip()
        later = "Slurm chooses the nodes later: their code and data could not be looked at"
        return Checked(said=[said, later])

    def submit(self, job: Job, folder: RunFolder, root: Path = ROOT) -> str:
        """Submits the batch script, with the variables that the tasks get; returns the job's id."""
        allowed_variables(job.cluster.pass_environment)
        path, output = folder.path / f"{script.NAME}.sbatch", output_path(folder)
        with folder.writes():
            for file in (path, output):
                file.touch(mode=0o600)  # only its owner may read it
            path.write_text(script.batch_script(job, root), encoding="utf-8")
        named = f"--job-name={job.cluster.name or script.NAME}-{folder.run_id}"
        # Options on the command line take precedence over the user's SBATCH_ variables.
        words, *of_ps = script.options(job.cluster)
        words += ["--parsable", named, f"--output={str(output).replace('%', '%%')}", "--export=ALL"]
        words += [word for part in of_ps for word in (":", *part)]
        # The script holds no value of a variable: the job gets them from the environment of sbatch.
        # If this launcher runs in a Slurm job, the variables of that job must not get into it.
        env = {n: v for n, v in os.environ.items() if n[:6] != "SLURM_" or n == "SLURM_CONF"}
        env |= dict(job.cluster.environment)
        words += [str(path), f"--run={folder.path.absolute()}"]
        done = ask("sbatch", *words, env=env, secs=_SUBMIT_SECS)
        return done.stdout.strip().split(";")[0]

    def job_of(self, record: Record) -> Optional[SlurmJob]:
        """Returns this user's job that has the run's name; None if Slurm knows none."""
        name = f"{record.get('name') or script.NAME}-{record['run']}"
        words = ("squeue", "--noheader", "--me", f"--name={name}", "--format=%i")
        job_id = ask(*words).stdout.partition("\n")[0]
        return SlurmJob(job_id) if job_id else None

    def run(self, job: Job, folder: RunFolder, display: Display) -> Result:
        """Submits the batch script, and follows the job to its end."""
        with stop_signals() as stops:
            # A signal waits: only the answer names the job.
            copied, root = _with_snapshot(job, folder, display)
            submitted = SlurmJob(self.submit(copied, folder, root))
            goes_on = f"should this launcher end, it goes on: stop --run {folder.run_id}"
            display.note(f"{submitted.title}: submitted; {goes_on}")
            if not folder.status()["tasks"]:  # until the job writes its own
                folder.write_status(status_of(map(TaskState, job.tasks)))
            watch = JobWatch(submitted, folder, display)
            while (result := watch.step(time.monotonic(), stops)) is None:
                time.sleep(_LOOK_SECS)
            return result

    def clean(self, record: Record) -> list[str]:
        """Cancels the run's job if it is not over, and waits for its end."""
        job = self.job_of(record)
        return [] if job is None else job.end(now=True)


def _with_snapshot(job: Job, folder: RunFolder, display: Display) -> tuple[Job, Path]:
    """Copies what a job runs: the launcher, the packages, and the scripts beside the program.

    Returns:
      The job with the copied program, and the folder that has the launcher.

    Raises:
      HostError: a file cannot be read or written.
    """
    cluster, root = job.cluster, folder.path.absolute() / "code"
    workdir, program = Path(cluster.hosts[0].workdir).expanduser(), script_of(cluster)
    if program is None or not cluster.section(script.SlurmSettings).snapshot:
        return job, ROOT
    if not (workdir / program).is_file():
        why = f"{workdir} has no {program} here, so the job runs what is there when it starts"
        display.note(f"no snapshot of the code: {why}")
        return job, ROOT
    try:
        for name in ("launch", *PACKAGES):
            has_own = name != "launch" and (workdir / name).is_dir()
            no_cache = shutil.ignore_patterns("__pycache__")
            shutil.copytree((workdir if has_own else ROOT) / name, root / name, ignore=no_cache)
        for path in [workdir / program, *(workdir / program).parent.glob("*.py")]:
            shutil.copy(path, root)
    except (OSError, shutil.Error) as error:
        hint = "`snapshot: false` under `slurm:` runs the code as it is when the job starts"
        raise HostError(f"no copy of the code in {workdir}: {error}; {hint}") from None
    copied = replace(cluster, program=str(root / os.path.basename(program)))
    return make_job(copied, job.arguments), root


def output_path(folder: RunFolder) -> Path:
    """Returns the path of the file that receives the output of the batch script."""
    return folder.path.absolute() / "slurm.out"


class JobWatch:
    """Follows one job: shows its states, ends it, and says how it ended.

    Args:
      job: the job.
      folder: the run's folder, to which the job writes.
      display: shows the job's progress to the user.
    """

    def __init__(self, job: SlurmJob, folder: RunFolder, display: Display) -> None:
        self._job, self._folder, self._display = job, folder, display
        self._output = LogReader(output_path(folder))
        self._state, self._answers, self._asked_at = JobState(""), True, -math.inf
        self._ending_since = math.inf  # the scheduler says so, though the job has written its end
        self._stops: list[int] = []

    def step(self, now: float, stops: Sequence[int]) -> Optional[Result]:
        """Does what is due at a time; returns how the job ended, once that is known.

        Args:
          now: the time, by time.monotonic.
          stops: the signals so far that ask for the end. The first one asks the tasks to save and
            end, a second one cancels the job; a pending job is cancelled at once. SIGHUP ends only
            the following.
        """
        self._show_output()
        for signum in stops[len(self._stops) :]:
            if signum == signal.SIGHUP:
                goes_on = "is asked to end" if self._stops else "goes on"
                words = f"the launcher leaves; {self._job.title} {goes_on}"
                return Result(128 + signum, words, cause=ExitReason.USER)
            self._stops.append(signum)
            self._job.urgency = min(len(self._stops), CANCEL)
            self._display.note(f"{signal.Signals(signum).name}: stopping {self._job.title}")
            self._asked_at = -math.inf  # the last answer may be old
        hurries = self._stops or self._folder.status().get("exit_code") is not None
        if now < self._asked_at + (HURRY_SECS if hurries else _WAIT_SECS):
            return None
        self._asked_at = now
        try:
            state = self._job.poll()
        except HostError as error:
            if self._answers:
                self._display.note(f"{error}; the job goes on")
            self._answers = False
            return None
        self._answers = True
        before, self._state = self._state, state
        # The job may have written its end while the scheduler was asked.
        is_late = state.is_ending and self._folder.status().get("exit_code") is not None
        self._ending_since = min(self._ending_since, now) if is_late else math.inf
        if state.is_over or now >= self._ending_since + _CLEAR_UP_SECS:  # as when a node is down
            return self._over()
        if state.words != before.words and not state.is_ending:
            self._display.note(f"{self._job.title}: {state.words}")
        if refusal := self._job.ask_to_end(state):
            self._display.note(refusal)
        return None

    def _show_output(self, *, final: bool = False) -> None:
        """Shows new lines of the batch script."""
        for line in self._output.lines(final=final):
            self._display.note(line.text)

    def _over(self) -> Result:
        """Shows what is left, and writes how the job ended."""
        self._show_output(final=True)
        result = self._folder.end()
        if self._stops and (result is None or result.exit_code == 128 + signal.SIGTERM):
            signum, details = self._stops[0], () if result is None else result.details
            words = f"stopped by {signal.Signals(signum).name}"
            result = Result(128 + signum, words, details=details, cause=ExitReason.USER)
        else:
            output = output_path(self._folder)
            result = how_it_ended(self._job.title, self._state, result, output)
        self._folder.write_end(result)
        return result


def how_it_ended(title: str, ended: JobState, said: Optional[Result], output: Path) -> Result:
    """Returns how a job ended that this launcher did not stop.

    Args:
      title: what to call the job.
      ended: the last answer about the job.
      said: how it ended, as the job itself has written; None if it could not. Then the last lines
        of its output are shown as details.
      output: the file with the output of the batch script.
    """
    if said is not None:
        cause, why = said.cause, ended.why
        if cause is ExitReason.PLATFORM:
            cause, why = ended.cause or cause, why or f"it ended the job; state {ended.words}"
        reason = f"{said.reason} (Slurm: {why})" if why else said.reason
        return replace(said, reason=reason, cause=cause)
    why = ended.why or f"it ended as {ended.words}, exit code {ended.exit_code}"
    lines = [line.text for line in LogReader(output).lines(final=True) if line.text.strip()]
    log = f"  log: {output}"
    if not lines:
        log += " is empty or not there; do the nodes share that folder? see --state-dir"
    details = (*(f"  | {line}" for line in lines[-_LAST_LINES:]), log)
    code = 124 if ended.cause is ExitReason.TIME_LIMIT else ended.exit_code or 1
    cause = ended.cause or ExitReason.TASK_FAILED
    return Result(code, f"{title}: {why}", details=details, cause=cause)
