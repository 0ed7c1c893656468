"""What all backends have in common that run agents on the hosts, which can be checked first."""

from launch.cluster import show
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.connect.sweep import sweep
from launch.connect.transport import Transport
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents


class AgentBackend:
    """Tasks as processes of the hosts, each under its host's agent.

    Attributes:
      transport: the way to the hosts.
      is_checked_first: whether `up` looks at them unasked.
    """

    transport: Transport
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
        return run_with_agents(job, folder, self.transport, display)

    def clean(self, record: Record) -> list[str]:
        """Ends what carries the run's mark on every host."""
        return sweep(record, self.transport)
