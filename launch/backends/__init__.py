"""Where a job runs. A backend is a module here with a pure `plan` and an effectful `run`.

To add one: write its module, name it in `launch.cluster.model.BACKENDS` and in `backend_named`.
"""

from dataclasses import dataclass
from typing import Optional, Protocol

from launch.cluster.tasks import Job
from launch.connect.transport import Transport
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display


@dataclass(frozen=True)
class Document:
    """A piece of a plan: what a person would run by hand, or hand to the backend's own tool.

    Attributes:
      name: a host, or the name of a file.
      text: shell lines, or the file's content.
    """

    name: str
    text: str


class Backend(Protocol):
    """What every backend does.

    Attributes:
      transport: the way to the hosts, for those that run agents; None for others, whose hosts
        cannot be checked beforehand.
    """

    @property
    def transport(self) -> Optional[Transport]: ...  # noqa: D102 (an attribute)

    def plan(self, job: Job) -> list[Document]:
        """What it would do, as text; changes nothing and asks no one.

        Raises:
          LaunchError: the job cannot be run that way.
        """

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


def backend_named(name: str) -> Backend:
    """The backend of this name; loads it only now."""
    if name == "local":
        from launch.backends.local import Local

        return Local()
    if name == "docker":
        from launch.backends.docker.backend import Docker

        return Docker()
    if name == "slurm":
        from launch.backends.slurm.backend import Slurm

        return Slurm()
    if name == "kubernetes":
        from launch.backends.kubernetes.backend import Kubernetes

        return Kubernetes()
    from launch.backends.ssh import Ssh

    return Ssh()
