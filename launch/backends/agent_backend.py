"""What the backends have in common that run agents on hosts, which can be checked first."""

from launch.backends.base import Backend
from launch.cluster.show import Document, shell_documents
from launch.cluster.tasks import Job
from launch.connect.sweep import sweep
from launch.connect.transport import Transport
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents


class AgentBackend(Backend):
    """Tasks as processes of the hosts, under an agent on each host.

    Attributes:
      transport: how the agents are reached.
      is_checked_first: whether `up` checks the hosts unasked.
    """

    transport: Transport
    is_checked_first = True

    def plan(self, job: Job) -> list[Document]:
        """Returns a shell line for each host."""
        return shell_documents(job)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs the tasks under an agent on each host."""
        return run_with_agents(job, folder, self.transport, display)

    def clean(self, record: Record) -> list[str]:
        """Ends what carries the run's mark on every host."""
        return sweep(record, self.transport)
