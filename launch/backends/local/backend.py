"""The local backend: each task is a process on this machine, under one agent."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from launch.backends.agent_backend import AgentBackend
from launch.cluster.model import Host
from launch.cluster.tasks import Job
from launch.connect.transport import Transport


def _command(host: Host, command: Sequence[str], line: str) -> list[str]:
    return list(command)


def _explain(host: Host, code: int, errors: str) -> str:
    return f"the agent ended with exit code {code}: {errors or 'without an error message'}"


def _log_path(log: Path, run_id: str) -> str:
    return str(log.absolute())


TRANSPORT = Transport(_command, _explain, _log_path, keeps_logs=True)


class Local(AgentBackend):
    """Runs tasks as processes on this machine."""

    transport = TRANSPORT
    is_checked_first = False

    def output_folder(self, job: Job) -> Optional[str]:
        """Returns the folder of the results; the tasks start in this process's folder."""
        folder = super().output_folder(job)
        return None if folder is None else os.path.abspath(os.path.expanduser(folder))
