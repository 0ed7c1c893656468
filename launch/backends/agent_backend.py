"""The base class of backends that run an agent on each host: local, ssh and docker."""

from launch.backends.base import Backend
from launch.cluster.show import Document, shell_documents
from launch.cluster.tasks import Job
from launch.connect.agent_client import sweep
from launch.connect.transport import Transport
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents
from launch.supervise.run_loop import stop_signals


class AgentBackend(Backend):
    """Runs the tasks of each host under an agent on that host.

    Attributes:
      transport: how the launcher reaches the agents.
      is_checked_first: whether `up` checks the hosts before it starts a job.
    """

    transport: Transport
    is_checked_first = True

    def plan(self, job: Job) -> list[Document]:
        """Returns a shell line for each host, which starts the host's tasks."""
        return shell_documents(job)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs the tasks under an agent on each host."""
        return run_with_agents(job, folder, self.transport, display)

    def clean(self, record: Record) -> list[str]:
        """Ends the processes and containers on every host that carry the run's mark.

        Signals that ask for the end close the connections, and raise SystemExit (128 + n).
        """
        with stop_signals() as stops:
            return sweep(record, self.transport, stops)
