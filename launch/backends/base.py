"""The interface of all backends, and protocols for what only some of them can do.

`launch.verbs` checks with `isinstance` which of the protocols a backend implements.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Protocol, runtime_checkable

from launch.cluster import show
from launch.cluster.model import Host
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display


class Backend(ABC):
    """Runs jobs in one kind of place, such as hosts behind ssh or a Slurm cluster."""

    @abstractmethod
    def plan(self, job: Job) -> list[Document]:
        """Returns shell lines, scripts or manifests that run the job by hand.

        Changes nothing, and contacts neither hosts nor schedulers.

        Raises:
          LaunchError: this backend cannot run the job, or its ports are not known yet.
        """

    def plan_text(self, job: Job) -> str:
        """Returns the plan for people; by default, a description of every task."""
        return show.as_text(job)

    def plan_json(self, job: Job) -> str:
        """Returns the plan as JSON for programs; by default, a description of every task."""
        return show.as_json(job)

    def output_folder(self, job: Job) -> Optional[str]:
        """Returns the folder to which training writes its results, as a path on the master's host.

        None if that is no folder of a host.
        """
        lead = next((task for task in job.tasks if task.is_lead), None)
        return None if lead is None else lead.host.folder(job.folder("output"))

    @abstractmethod
    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Starts the job and follows it; leaves nothing of an ended job behind.

        Shows on `display`, which the run's log receives, the lines of the tasks, and writes their
        status with `folder.write_status`.

        Raises:
          LaunchError: the job could not be started.
        """

    @abstractmethod
    def clean(self, record: Record) -> list[str]:
        """Ends what is left of a run whose launcher is gone.

        Args:
          record: the content of the run's `run.json`.

        Returns:
          Lines of text that say what was ended; an empty list if nothing was left.

        Raises:
          HostError: a host or the cluster could not be reached, or something did not end in time.
        """


@dataclass(frozen=True)
class ContainerNeeds:
    """What a host needs to run tasks in containers.

    Attributes:
      engine: the container engine's command, such as `docker`.
      image: the name of the image.
      records: the host's folder with the training's records, relative to the working directory.
      data: the data folder that the cluster's description names; None if it names none.
      data_key: the key of the description that names the data folder, for messages.
    """

    engine: str
    image: str
    records: str
    data: Optional[str]
    data_key: str


@runtime_checkable
class InContainers(Protocol):
    """A backend whose tasks run in containers on the hosts."""

    def containers(self, job: Job) -> ContainerNeeds:
        """Returns what the hosts need.

        Raises:
          LaunchError: the training's arguments name folders that do not exist in the containers.
        """


@runtime_checkable
class CopiesCode(Protocol):
    """A backend that can copy the code to the hosts."""

    def copy_code(self, hosts: Sequence[Host]) -> None:
        """Makes the code in each host's working directory the same as on this machine.

        Raises:
          HostError: the code could not be copied to a host.
        """


@runtime_checkable
class Scheduler(Protocol):
    """A backend whose scheduler chooses the hosts, and can judge a job before it is submitted."""

    def check(self, job: Job) -> list[str]:
        """Returns what the scheduler says about the job; LaunchError if it would never start."""


@runtime_checkable
class Outliving(Protocol):
    """A backend whose jobs go on when their launcher is gone."""

    def going_on(self, record: Record) -> str:
        """Returns the state of the run's job in words; an empty string once the job is over."""


@runtime_checkable
class Lasting(Outliving, Protocol):
    """A backend whose jobs can be followed and stopped when their launcher is gone."""

    def stop(self, record: Record, *, now: bool) -> None:
        """Ends the job, and waits for its end; with `now`, the tasks get no time to save."""
