"""Every task is a process on this machine, under one agent."""

from collections.abc import Sequence

from launch.backends import Document
from launch.cluster.model import Host
from launch.cluster.show import shell_documents
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


def _log_path(folder: RunFolder, task: str) -> str:
    return str(folder.log_path(task).absolute())


TRANSPORT = Transport(_command, _explain, _log_path, keeps_logs=True)


class Local:
    """Processes here."""

    transport = TRANSPORT

    def plan(self, job: Job) -> list[Document]:
        """A shell line that runs all tasks."""
        return shell_documents(job)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs the tasks as descendants of this process."""
        return run_with_agents(job, folder, TRANSPORT, display)

    def clean(self, record: Record) -> list[str]:
        """Ends processes that carry the run's mark."""
        return sweep(record, TRANSPORT)
