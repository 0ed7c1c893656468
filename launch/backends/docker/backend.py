"""The docker backend: each task is a container, which an agent on its host starts.

The launcher reaches agents on other machines over ssh, and starts the one on its own machine
directly.
"""

import sys
from collections.abc import Sequence
from typing import Optional

from launch.backends.agent_backend import AgentBackend
from launch.backends.base import ContainerNeeds
from launch.backends.docker import run as docker_run
from launch.backends.docker.settings import settings_of
from launch.backends.local.backend import TRANSPORT as LOCAL
from launch.backends.ssh.transport import TRANSPORT as SSH
from launch.cluster import show
from launch.cluster.host_list import is_this_machine
from launch.cluster.model import Host
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.connect.transport import Transport
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents


def is_here(host: Host) -> bool:
    """Returns whether an agent needs no ssh: the host is this machine, and no user is named."""
    return host.user is None and is_this_machine(host.name)


def _command(host: Host, command: Sequence[str], line: str) -> list[str]:
    if is_here(host):
        return LOCAL.command(host, [sys.executable, *command[1:]], line)
    return SSH.command(host, command, line)


def _explain(host: Host, code: int, errors: str) -> str:
    transport = LOCAL if is_here(host) else SSH
    return transport.explain(host, code, errors)


TRANSPORT = Transport(_command, _explain, SSH.log_path, keeps_logs=False)


class Docker(AgentBackend):
    """Runs tasks in containers, on this machine and on others."""

    transport = TRANSPORT

    def plan(self, job: Job) -> list[Document]:
        """Returns the `docker run` lines of each host."""
        return docker_run.documents(job)

    def plan_text(self, job: Job) -> str:
        """Describes every task, with its `docker run` command quoted for a shell."""
        return show.as_text(docker_run.for_people(job), docker_run.line)

    def plan_json(self, job: Job) -> str:
        """Describes every task as JSON, with a `docker run` command that lacks only `--user`."""
        return show.as_json(docker_run.for_programs(job))

    def output_folder(self, job: Job) -> Optional[str]:
        """Returns the folder on the master's host that its container writes its results to."""
        lead = next((task for task in job.tasks if task.is_lead), None)
        return None if lead is None else docker_run.results_on_host(job, lead.host)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        """Runs a container for each task, under an agent on each host."""
        docker_run.check_folders(job)
        folder.add(engine=settings_of(job.cluster).engine)
        return run_with_agents(
            job,
            folder,
            TRANSPORT,
            display,
            adapt=lambda ready: docker_run.for_agents(ready, folder.run_id),
            containers=docker_run.agent_setup(job.cluster),
        )

    def containers(self, job: Job) -> ContainerNeeds:
        """Returns the engine, the image and the data folder that the hosts need."""
        settings = settings_of(job.cluster)
        return ContainerNeeds(
            engine=settings.engine,
            image=settings.image,
            records=docker_run.records_on_host(job),
            data=settings.data,
            data_key="docker: {data: }",
        )
