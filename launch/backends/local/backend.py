"""Every task is a process on this machine, under one agent."""

from collections.abc import Sequence
from pathlib import Path

from launch.cluster import show
from launch.cluster.model import Host
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.connect.sweep import sweep
from launch.connect.transport import Transport
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents


def _command(host: Host, command: Sequence[str], line: str) -> list[str]:
    return list(command)


def _explain(host: Host, code: int, errors: str) -> str:
    return f"the agent ended with exit code {code}: {errors or 'without a word'}"


def _log_path(log: Path, run_id: str) -> str:
    return str(log.absolute())


TRANSPORT = Transport(_command, _explain, _log_path, keeps_logs=True)


class Local:
    """Processes here."""

    transport = TRANSPORT
    is_checked_first = False

    def plan(self, job: Job) -> list[Document]:
        """A shell line that runs all tasks."""
        return show.shell_documents(job)

    def plan_text(self, job: Job) -> str:
        """Every task."""
        return show.as_text(job)

    def plan_json(self, job: Job) -> str:
        """Every task."""
        return show.as_json(job)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs the tasks as descendants of this process."""
        return run_with_agents(job, folder, TRANSPORT, display)

    def clean(self, record: Record) -> list[str]:
        """Ends processes that carry the run's mark."""
        return sweep(record, TRANSPORT)
