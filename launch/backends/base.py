"""What every backend does, and as protocols what only some of them do.

`launch.verbs` asks with `isinstance` which of the protocols a backend follows.
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
    """A place where jobs run."""

    @abstractmethod
    def plan(self, job: Job) -> list[Document]:
        """Returns what it would do, as text to run by hand. Changes nothing and asks no one.

        Raises:
          LaunchError: the job cannot be run that way.
        """

    def plan_text(self, job: Job) -> str:
        """Returns the plan for people: by default every task."""
        return show.as_text(job)

    def plan_json(self, job: Job) -> str:
        """Returns the plan for programs: by default every task."""
        return show.as_json(job)

    @abstractmethod
    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs the job to its end, and leaves nothing behind.

        It writes logs to `folder.log_path(task)`, and where the tasks stand with
        `folder.write_status`.

        Raises:
          LaunchError: the job could not be started.
        """

    @abstractmethod
    def clean(self, record: Record) -> list[str]:
        """Ends what is left of a run whose launcher is gone; returns what it ended, in words.

        Args:
          record: the run's `run.json`.

        Raises:
          HostError: a place could not be looked at.
        """


@dataclass(frozen=True)
class ContainerNeeds:
    """What a host must have so that tasks can run there in containers.

    Attributes:
      engine: the command that runs them.
      image: its name there.
      records: where a host has the training's records, relative to the working directory.
      data: the folder with records, if the description names one.
      data_key: how the description can name one, for messages.
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
        """Returns what the hosts must have.

        Raises:
          LaunchError: arguments name folders that no container has.
        """


@runtime_checkable
class CopiesCode(Protocol):
    """A backend that can bring the code to the hosts."""

    def copy_code(self, hosts: Sequence[Host]) -> None:
        """Makes the code in each host's working directory the same as here.

        Raises:
          HostError: it could not be copied.
        """


@runtime_checkable
class Scheduler(Protocol):
    """A backend that chooses the hosts itself, and can be asked about a job beforehand."""

    def check(self, job: Job) -> list[str]:
        """Returns what it says about such a job; LaunchError if the job would never start."""


@runtime_checkable
class Lasting(Protocol):
    """A backend whose jobs outlive their launcher."""

    def going_on(self, record: Record) -> str:
        """Returns where the run's job stands, in words; empty once it is over."""

    def stop(self, record: Record, *, now: bool) -> None:
        """Ends the job in order, or with `now` without saving, and waits until it has ended."""
