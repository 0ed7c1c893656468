"""Shows a job before it runs: as text, as JSON, or as a shell line for each node. Changes nothing.

Most backends show their plans with these functions.

Variables of `environment` and `pass_environment` are shown by name only.
"""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from launch.cluster.model import Host
from launch.cluster.tasks import Job, Task
from launch.errors import LaunchError


@dataclass(frozen=True)
class Document:
    """A piece of a plan: what a person would run by hand, or hand to the backend's own tool.

    Attributes:
      name: a host, a command, or the name of a file.
      text: shell lines, or the file's content.
    """

    name: str
    text: str


def command(task: Task) -> str:
    """The command line as a person would type it."""
    return f"cd {shlex.quote(task.host.workdir)} && {shlex.join(task.argv)}"


def as_text(job: Job, shown: Callable[[Task], str] = command) -> str:
    """Returns every task's host, TF_CONFIG, command and devices, for people.

    Args:
      job: the tasks.
      shown: how a command is shown.
    """
    hosts = len(job.cluster.hosts)
    lines = [f"{counts(job)} on {hosts} host{'s' * (hosts > 1)} ({job.cluster.backend})"]
    names = variables(job)
    for task in job.tasks:
        lines += [
            "",
            f"{task.name} on {reached(task.host)}",
            f"  TF_CONFIG    {task.tf_config}",
            f"  command      {shown(task)}",
            f"  devices      {task.devices.words()}",
        ]
        if names:
            lines.append(f"  environment  {', '.join(names)}")
    return "\n".join(lines)


def as_json(job: Job) -> str:
    """Returns the same for programs."""
    tasks = [_task(task, variables(job)) for task in job.tasks]
    return json.dumps({"backend": job.cluster.backend, "tasks": tasks}, indent=2)


def shell_documents(job: Job) -> list[Document]:
    """Returns a line for each node, which runs its tasks, for people who start them by hand.

    Raises:
      LaunchError: ports are still to be found.
    """
    refuse_free_ports(job)
    documents = []
    for host in job.cluster.hosts:
        tasks = job.on(host)
        words = [shell_command(task, variables(job), shlex.join(task.argv)) for task in tasks]
        commands = " ".join(f"{each} &" for each in words)
        line = f"cd {shlex.quote(host.workdir)} && {{ {commands} wait; }}"
        documents.append(Document(f"{reached(host)}: {', '.join(t.name for t in tasks)}", line))
    return documents


def refuse_free_ports(job: Job) -> None:
    """LaunchError if ports are still to be found: nobody could run such a plan."""
    if job.cluster.ports.low is None:
        raise LaunchError("--shell needs fixed ports: set `ports: 2222` in place of `ports: free`")


def as_documents(documents: Sequence[Document]) -> str:
    """Returns the pieces of a plan, each under its name; a script stays as it is."""
    return "\n".join(
        document.text if document.text.startswith("#!") else f"# {document.name}\n{document.text}"
        for document in documents
    )


def counts(job: Job) -> str:
    """`1 master, 2 ps`."""
    kinds = dict.fromkeys(task.task_type for task in job.tasks)
    return ", ".join(f"{job.cluster.count(kind)} {kind}" for kind in kinds)


def variables(job: Job) -> list[str]:
    """The names of the variables that the description gives to every task."""
    return sorted([*(name for name, _ in job.cluster.environment), *job.cluster.passed])


def reached(host: Host) -> str:
    """Returns a host's user, name and address; leaves out what the name says already."""
    name = f"{host.user}@{host.name}" if host.user else host.name
    return name if host.address == host.name else f"{name} ({host.address})"


def _task(task: Task, variables: list[str]) -> dict[str, Any]:
    return {
        "task": task.name,
        "host": task.host.name,
        "user": task.host.user,
        "address": task.host.address,
        "port": task.port,
        "workdir": task.host.workdir,
        "argv": list(task.argv),
        "tf_config": json.loads(task.tf_config),
        "gpus": None if task.devices.gpus is None else list(task.devices.gpus),
        "share": None if task.devices.share is None else list(task.devices.share),
        "environment": variables,
    }


def shell_command(task: Task, variables: list[str], line: str) -> str:
    """`line` with the task's environment before it."""
    words = [f"TF_CONFIG={shlex.quote(task.tf_config)}"]
    if task.devices.gpus is not None:
        words.append(
            f"CUDA_VISIBLE_DEVICES={','.join(map(str, task.devices.gpus)) or shlex.quote('')}"
        )
    # Their values are not for a screen: the shell that runs the line must have them.
    words += [f'{name}="${{{name}:?}}"' for name in variables]
    return " ".join([*words, line])
