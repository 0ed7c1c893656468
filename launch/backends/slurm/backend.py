"""The slurm backend: Slurm chooses the nodes, and the batch job itself runs the tasks on them.

The launcher submits the job, follows it, and ends it when the user asks for that. As Slurm's users
expect, the job goes on without the launcher.
"""

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace

from launch.backends.base import Backend
from launch.backends.slurm import commands
from launch.backends.slurm.commands import JobState
from launch.backends.slurm.follow import Follower
from launch.backends.slurm.output import output_path
from launch.backends.slurm.pursuit import Pursuit, Request, Wish
from launch.backends.slurm.script import NAME, options, script
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome, end_record
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import passed_values
from launch.supervise.run_loop import Interrupted, interrupted_by_a_stop, stop_signals

_END_SECS = 150.0  # Slurm gives a job that it ends 30 s between SIGTERM and SIGKILL, by default
_LOOK_SECS = 0.5


class Slurm(Backend):
    """Runs all tasks in one batch job."""

    def plan(self, job: Job) -> list[Document]:
        """Returns the batch script."""
        return [Document(f"{NAME}.sbatch", script(job))]

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Submits the batch script, and follows the job to its end."""
        with stop_signals() as stops:
            try:
                with interrupted_by_a_stop():
                    job_id = _submit(job, folder)
            except Interrupted as stop:
                return self._withdrawn(folder, stop.signum, display)
            display.note(
                f"Slurm job {job_id}: submitted; should this launcher end, it goes on: "
                f"stop --run {folder.run_id}"
            )
            return Follower(job_id, job, folder, display).run(stops)

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
            found = commands.test(options(job.cluster), file.name)
        return [found, "Slurm chooses the nodes later: their code and data could not be looked at"]

    def going_on(self, record: Record) -> str:
        """Returns the id and state of the run's job in words; an empty string once it is over."""
        return _words(commands.jobs_named(_name(record["run"])))

    def stop(self, record: Record, *, now: bool) -> None:
        """Ends the run's job, and waits for its end; with `now`, tasks get no time to save."""
        self._end(record, Wish.KILL if now else Wish.SAVE)

    def clean(self, record: Record) -> list[str]:
        """Cancels the run's job if it is not over, and waits for its end."""
        jobs = commands.jobs_named(_name(record["run"]))
        for job_id in jobs:
            with contextlib.suppress(LaunchError):  # then it is cancelled whenever it comes back
                commands.forbid_requeue(job_id)
        self._end(record, Wish.CANCEL)
        return [f"Slurm job {job}: cancelled; it was {state.words}" for job, state in jobs.items()]

    def _withdrawn(self, folder: RunFolder, signum: int, display: Display) -> Outcome:
        """Ends the job that sbatch may have submitted before a signal ended it.

        A further signal leaves that to `clean`.
        """
        words = f"stopped by {signal.Signals(signum).name} before sbatch answered"
        outcome = Outcome(128 + signum, words, cause=Cause.USER)
        display.note(
            "asking Slurm whether sbatch has submitted a job; a second signal leaves that to "
            f"clean --run {folder.run_id}"
        )
        try:
            with interrupted_by_a_stop():
                for line in self.clean({"run": folder.run_id}):
                    display.note(line)
        except (Interrupted, LaunchError):
            way_out = f"to end a job that it may have submitted: clean --run {folder.run_id}"
            return replace(outcome, reason=f"{words}; {way_out}")
        folder.write_status({**folder.status(), **end_record(outcome)})
        return outcome

    def _end(self, record: Record, wish: Wish) -> None:
        """Asks for the end of the run's job until it is over, also if it is requeued meanwhile.

        Raises:
          HostError: it is not over in time.
        """
        deadline = time.monotonic() + _END_SECS
        pursuits: dict[str, Pursuit] = {}
        refusal, num_absent = "", 0
        while num_absent < 2:  # a job that is being requeued could be missing once
            jobs = commands.jobs_named(_name(record["run"]))
            num_absent = 0 if jobs else num_absent + 1
            for job_id, state in jobs.items():
                request = pursuits.setdefault(job_id, Pursuit(wish)).due(state, time.monotonic())
                try:
                    if request is Request.CANCEL:
                        commands.cancel(job_id)
                    elif request is Request.SIGTERM:
                        commands.ask_to_end(job_id)
                except LaunchError as error:  # it may have ended or begun since `jobs_named`
                    refusal = f"; {error}"
            if jobs and time.monotonic() > deadline:
                raise HostError(f"{_words(jobs)}: not over after {_END_SECS:g} s{refusal}")
            time.sleep(_LOOK_SECS)


def _words(jobs: Mapping[str, JobState]) -> str:
    return ", ".join(f"Slurm job {job_id}: {state.words}" for job_id, state in jobs.items())


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
    return commands.submit(
        [*options(job.cluster), *words],
        str(path),
        [f"--run={folder.path.absolute()}"],
        {**own, **dict(job.cluster.environment)},
    )


def _name(run_id: str) -> str:
    return f"{NAME}-{run_id}"
