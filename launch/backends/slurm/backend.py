"""The slurm backend: Slurm chooses the nodes, and the batch job itself runs the tasks on them."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Optional

from launch.backends.base import Backend
from launch.backends.slurm import script
from launch.backends.slurm.job_watch import JobWatch, output_path
from launch.backends.slurm.scheduler import SlurmJob, ask
from launch.backends.slurm.script import NAME, SlurmSettings
from launch.cluster.host_list import ROOT
from launch.cluster.model import FREE_PORTS, Cluster
from launch.cluster.show import Document
from launch.cluster.tasks import PACKAGES, Job, make_job, script_of
from launch.connect.host_check import Checked
from launch.errors import HostError
from launch.record.result import Result
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import allowed_variables
from launch.supervise.run_loop import stop_signals
from launch.supervise.task_state import TaskState, status_of

_SUBMIT_SECS = 60
_LOOK_SECS = 0.5  # between two looks at what the job has written


class Slurm(Backend):
    """Runs all tasks in one batch job of Slurm, which goes on without its launcher."""

    name = "slurm"
    settings = SlurmSettings
    chooses_hosts = True
    default_ports = FREE_PORTS
    job_writes_log = True

    def arranged(self, cluster: Cluster) -> Cluster:
        """Returns the cluster with the ps on nodes of their own if `ps:` asks for such nodes."""
        return script.arranged(cluster)

    def plan(self, job: Job) -> list[Document]:
        """Returns the batch script."""
        return [Document(f"{NAME}.sbatch", script.batch_script(job))]

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
        path, output = folder.path / f"{NAME}.sbatch", output_path(folder)
        with folder.writes():
            for file in (path, output):
                file.touch(mode=0o600)  # only its owner may read it
            path.write_text(script.batch_script(job, root), encoding="utf-8")
        named = f"--job-name={_name(folder.run_id, job.cluster.name)}"
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
        name = _name(record["run"], record.get("name"))
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
    if program is None or not cluster.section(SlurmSettings).snapshot:
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


def _name(run_id: str, name: Optional[str]) -> str:
    return f"{name or NAME}-{run_id}"
