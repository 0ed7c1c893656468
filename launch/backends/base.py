"""What a backend does, and what only some can do: `launch.verbs` asks for it by these protocols."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, Protocol, runtime_checkable

from launch.cluster.model import Host
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display


class Backend(Protocol):
    """What every backend does: a pure plan, and an effectful `run`."""

    def plan(self, job: Job) -> list[Document]:
        """What it would do, as text to run by hand; changes nothing and asks no one.

        Raises:
          LaunchError: the job cannot be run that way.
        """

    def plan_text(self, job: Job) -> str:
        """The same for people; mostly `launch.cluster.show.as_text`."""

    def plan_json(self, job: Job) -> str:
        """The same for programs; mostly `launch.cluster.show.as_json`."""

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs the job to its end, and leaves nothing behind.

        Logs go to `folder.log_path(task)`, states to `folder.write_status`.

        Raises:
          LaunchError: it could not be started.
        """

    def clean(self, record: Record) -> list[str]:
        """Ends what is left of a run whose launcher is gone; returns what it ended, in words.

        Args:
          record: the run's `run.json`.

        Raises:
          HostError: a place could not be looked at.
        """


@dataclass(frozen=True)
class ContainerNeeds:
    """What a host must have, for tasks to run there in containers.

    Attributes:
      engine: the command that runs them.
      image: its name there.
      records: where a host has the training's records, relative to the working directory.
      data: the folder with records that the description names, if it does.
      data_key: how it would name one, for messages.
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
        """What they need.

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
        """What it says about such a job; LaunchError if it would never start."""


@runtime_checkable
class Lasting(Protocol):
    """A backend whose jobs outlive their launcher."""

    def going_on(self, record: Record) -> str:
        """Where the run's job stands, in words; empty once it is over."""

    def stop(self, record: Record, *, now: bool) -> None:
        """Ends it in order, or without saving, and waits until it has ended."""
