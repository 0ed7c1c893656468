"""The local backend: each task is a process on this machine, under one agent."""

import os

from launch.backends.base import Backend
from launch.cluster.model import FREE_PORTS
from launch.cluster.tasks import Job
from launch.connect.link import Transport
from launch.record.result import words_for

TRANSPORT = Transport(
    command=lambda host, command, line, lease_secs: list(command),
    explain=lambda host, code, errors: ": ".join(
        filter(None, ("the agent ended", words_for(code), errors))
    ),
)


class Local(Backend):
    """Runs tasks as processes on this machine."""

    name = "local"
    is_this_machine = True
    default_ports = FREE_PORTS
    transport = TRANSPORT

    def output_folder(self, job: Job) -> str:
        """Returns the folder of the results; the tasks start in this process's folder."""
        return os.path.abspath(os.path.expanduser(job.chief.host.folder(job.folder("output"))))
