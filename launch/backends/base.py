"""What a backend is: one class, the same for all."""

from typing import ClassVar, Optional, Protocol

from launch.cluster import show
from launch.cluster.model import BackendFacts
from launch.cluster.tasks import Job
from launch.connect.agent_client import reap
from launch.connect.host_check import Checked, HostNeeds, examine
from launch.connect.link import Transport
from launch.errors import LaunchError
from launch.record.result import Result
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents
from launch.supervise.run_loop import stop_signals


class RemoteJob(Protocol):
    """A job that goes on without its launcher. Each method raises HostError if nobody answers."""

    def state(self) -> str:
        """Returns its name and state in words; "" once it is over."""

    def end(self, *, now: bool) -> list[str]:
        """Ends it, waits for that, and returns what was ended; with `now`, it need not save."""


class Backend(BackendFacts):
    """Runs jobs in one kind of place, such as hosts behind ssh or a Slurm cluster.

    A backend with a transport has an agent on each host, and needs little else. One without
    overrides `plan`, `check`, `run` and `job_of`.

    Attributes:
      transport: how the launcher reaches an agent on each host; None if there are no agents.
      is_checked_first: whether `up` checks the hosts before it starts a job.
      job_writes_log: whether a job writes the log of its run itself, on a file system that it
        shares with the launcher. Otherwise a new launcher has to follow a job that was left.
    """

    transport: ClassVar[Optional[Transport]] = None
    is_checked_first: ClassVar[bool] = False
    job_writes_log: ClassVar[bool] = False

    @property
    def survives(self) -> bool:
        """Whether a job survives its launcher, since a scheduler runs it rather than agents."""
        return self.transport is None

    def plan(self, job: Job) -> list[show.Document]:
        """Returns shell lines, scripts or manifests that run the job by hand.

        Changes nothing, and contacts neither hosts nor schedulers.

        Raises:
          LaunchError: this backend cannot run the job, or its ports are not known yet.
        """
        return show.shell_documents(job)

    def addressed(self, job: Job) -> Job:
        """Returns the job with the TF_CONFIG that its tasks get, as far as it is known before."""
        return job

    def plan_text(self, job: Job) -> str:
        """Returns the plan for people: what is submitted, or a description of every task."""
        return show.as_documents(self.plan(job)) if self.survives else show.as_text(job)

    def output_folder(self, job: Job) -> Optional[str]:
        """Returns the folder to which training writes its results, as a path on the master's host.

        None if that is no folder of a host.
        """
        return job.chief.host.folder(job.folder("output"))

    def needs(self, job: Job) -> HostNeeds:
        """Returns what the hosts need to run the tasks.

        Raises:
          LaunchError: the training's arguments name folders that do not exist in containers.
        """
        return HostNeeds(job.folder("data"))

    def check(self, job: Job) -> Checked:
        """Examines the hosts, or asks a scheduler about a job before it is submitted.

        Raises:
          LaunchError: the job would never start, or this backend cannot ask.
        """
        if self.transport is None:
            words = f"check examines hosts, but {self.name} chooses them when the job starts"
            raise LaunchError(words)
        with stop_signals() as stops:
            return examine(job, self.needs(job), self.transport, stops)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Result:
        """Starts the job and follows it; leaves nothing of an ended job behind.

        Shows on `display`, which the run's log receives, the lines of the tasks, and writes their
        status with `folder.write_status`.

        Raises:
          LaunchError: the job could not be started.
        """
        assert self.transport is not None
        return run_with_agents(job, folder, self.transport, display)

    def job_of(self, record: Record) -> Optional[RemoteJob]:
        """Returns the job of a run that goes on without its launcher; None if there is none.

        Args:
          record: the content of the run's `run.json`.
        """
        return None

    def rejoin(self, folder: RunFolder, display: Display) -> Result:
        """Follows a job that goes on without its launcher to its end.

        Raises:
          LaunchError: it cannot be followed.
        """
        raise NotImplementedError

    def known(self, run_id: str) -> Optional[Record]:
        """Returns the record of a run that is in the cluster, also of another machine; or None."""
        return None

    def clean(self, record: Record) -> list[str]:
        """Ends what is left of a run whose launcher is gone.

        Signals that ask for the end close connections to hosts, and raise SystemExit (128 + n).

        Args:
          record: the content of the run's `run.json`.

        Returns:
          Lines of text that say what was ended; an empty list if nothing was left.

        Raises:
          HostError: a host or the cluster could not be reached, or something did not end in time.
        """
        if self.transport is None:
            job = self.job_of(record)
            return [] if job is None else job.end(now=False)
        with stop_signals() as stops:
            return reap(record, self.transport, stops)
