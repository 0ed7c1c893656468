"""Describes a job before it runs: as text, or as one shell line for each host.

Most backends make their plans with these functions. Variables of `environment` and
`pass_environment` are shown by name only.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launch.cluster.model import Host
from launch.cluster.tasks import Job, Task
from launch.errors import LaunchError


@dataclass(frozen=True)
class Document:
    """A part of a plan, such as shell lines, a batch script or manifests.

    Attributes:
      name: a host and its tasks, a command, or the name of a file.
      text: shell lines, or the content of the file.
    """

    name: str
    text: str


def command(task: Task) -> str:
    """Returns a task's command as a shell line, without the environment variables."""
    return f"cd {quoted_path(task.host.workdir)} && {shlex.join(task.argv)}"


def as_text(job: Job, shown: Callable[[Task], str] = command) -> str:
    """Returns each task's host, TF_CONFIG, command, devices and variables, for people.

    Args:
      job: the job to describe.
      shown: returns a task's command as the text shows it.
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


def shell_documents(
    job: Job,
    start: Callable[[Host], str] = lambda host: f"cd {quoted_path(host.workdir)}",
    line: Callable[[Task], str] = lambda task: shlex.join(task.argv),
) -> list[Document]:
    """Returns for each host a shell line that runs all its tasks, to start them by hand.

    Args:
      job: the job.
      start: returns the command before a host's tasks.
      line: returns a task's command, quoted for a shell.

    Raises:
      LaunchError: the ports are free ones, which are known only when the job starts.
    """
    if any(task.port is None and task.task_type != "evaluator" for task in job.tasks):
        raise LaunchError("--shell needs fixed ports: set `ports: 2222` in place of `ports: free`")
    documents = []
    for host in job.cluster.hosts:
        tasks = job.on(host)
        commands = " ".join(f"{_shell_command(job, task)}{line(task)} &" for task in tasks)
        name = f"{reached(host)}: {', '.join(task.name for task in tasks)}"
        documents.append(Document(name, f"{start(host)} && {{ {commands} wait; }}"))
    return documents


def as_documents(documents: Sequence[Document]) -> str:
    """Returns the parts of a plan as one text, each below its name unless it is a script."""
    return "\n".join(
        document.text if document.text.startswith("#!") else f"# {document.name}\n{document.text}"
        for document in documents
    )


def counts(job: Job) -> str:
    """Returns the number of tasks of each type, such as `1 master, 2 ps, 2 workers`."""
    numbers = Counter(task.task_type for task in job.tasks)
    return ", ".join(
        f"{number} {kind}{'s' * (number > 1 and kind != 'ps')}" for kind, number in numbers.items()
    )


def variables(job: Job) -> list[str]:
    """Returns the names of all variables that the description gives to the tasks, sorted."""
    return sorted([*(name for name, _ in job.cluster.environment), *job.cluster.pass_environment])


def reached(host: Host) -> str:
    """Returns `USER@NAME (ADDRESS)`, without the parts that are unset or equal to the name."""
    return host.login if host.address == host.name else f"{host.login} ({host.address})"


def quoted_path(path: str) -> str:
    """Quotes a path of a host for a shell, but lets that fill in the home for `~` and `~/`."""
    if path != "~" and not path.startswith("~/"):
        return shlex.quote(path)
    return f'"$HOME"{shlex.quote(path[1:]) if path[1:] else ""}'


def _shell_command(job: Job, task: Task) -> str:
    """Returns what precedes a task's command in a shell: TF_CONFIG, its GPUs and the variables."""
    words = [f"TF_CONFIG={shlex.quote(task.tf_config)}"]
    if task.devices.gpus is not None:
        gpus = ",".join(map(str, task.devices.gpus)) or shlex.quote("")
        words.append(f"CUDA_VISIBLE_DEVICES={gpus}")
    # Values must not be printed, so the shell that runs the line must have the variables.
    words += [f'{name}="${{{name}:?}}"' for name in variables(job)]
    return "".join(f"{word} " for word in words)
