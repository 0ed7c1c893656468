"""Every task is a process on its host, under an agent that OpenSSH starts."""

from collections.abc import Sequence

from launch.backends.ssh.sync import sync_code
from launch.backends.ssh.transport import TRANSPORT
from launch.cluster import show
from launch.cluster.model import Host
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.connect.sweep import sweep
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents


class Ssh:
    """Processes on other machines."""

    transport = TRANSPORT
    is_checked_first = True

    def plan(self, job: Job) -> list[Document]:
        """A shell line for each host."""
        return show.shell_documents(job)

    def plan_text(self, job: Job) -> str:
        """Every task."""
        return show.as_text(job)

    def plan_json(self, job: Job) -> str:
        """Every task."""
        return show.as_json(job)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs the tasks under an agent on each host."""
        return run_with_agents(job, folder, TRANSPORT, display)

    def clean(self, record: Record) -> list[str]:
        """Ends processes on every host that carry the run's mark."""
        return sweep(record, TRANSPORT)

    def copy_code(self, hosts: Sequence[Host]) -> None:
        """Copies it with rsync."""
        sync_code(hosts)
