"""`docker run` for each task: the same image and entry point for every role."""

import posixpath
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Optional

from launch.agent.containers import DATA, OUTPUT, gpu_words, mount
from launch.agent.processes import RUN
from launch.agent.protocol import Message
from launch.backends.docker.settings import settings_of
from launch.cluster.model import Cluster, Host
from launch.cluster.show import Document, reached, refuse_free_ports, shell_command, variables
from launch.cluster.tasks import SCRIPT, Job, Task
from launch.errors import LaunchError

_CODE = posixpath.dirname(DATA)  # in the image; its working directory, too
_USER_IDS = "$(id -u):$(id -g)"  # filled in by the shell that runs the line
_USER = f"--user={_USER_IDS}"
_MOUNTING = ("--mount=", "--volume=", "--volumes-from=")


def agent_setup(cluster: Cluster) -> Message:
    """Returns what an agent must know about containers."""
    return {"engine": settings_of(cluster).engine, "mounts": _mounts(cluster)}


def for_agents(job: Job, run_id: str) -> Job:
    """Returns the job with the commands for agents, which add what they learn on their hosts."""
    # The client takes the values from its own environment: no process list shows them.
    names = ["TF_CONFIG", "CUDA_VISIBLE_DEVICES", RUN, *variables(job)]
    return _with_commands(job, run_id, lambda task: [f"--env={name}" for name in names])


def for_programs(job: Job) -> Job:
    """Returns the job with commands that are complete but for `--user`.

    Raises:
      LaunchError: arguments name folders that no container has.
    """
    check_folders(job)
    return _with_commands(job, "cifar10", lambda task: _details(job, task))


def for_people(job: Job) -> Job:
    """Returns the job with complete commands; `line` quotes them for a shell."""
    check_folders(job)
    return _with_commands(job, "cifar10", lambda task: [_USER, *_details(job, task)])


def line(task: Task) -> str:
    """Quotes a command of `for_people` for a shell."""
    return " ".join(map(_for_a_shell, task.argv))


def documents(job: Job) -> list[Document]:
    """Returns lines for each host, to run by hand.

    Raises:
      LaunchError: ports are still to be found, or arguments name folders that no container has.
    """
    refuse_free_ports(job)
    job, found = for_people(job), []
    for host in job.cluster.hosts:
        tasks = job.on(host)
        lines = [f"{shell_command(task, variables(job), line(task))} &" for task in tasks]
        if host.trains:
            lines.insert(0, f"mkdir -p {_for_a_shell(_here(host, _output(job.cluster)))}")
        names = ", ".join(task.name for task in tasks)
        found.append(Document(f"{reached(host)}: {names}", "\n".join([*lines, "wait"])))
    return found


def check_folders(job: Job) -> None:
    """Refuses results that would be lost with their container, and records that are not in it.

    Raises:
      LaunchError: an argument names a folder that no container has, or one cannot be mounted.
    """
    for host in job.cluster.hosts:
        if set(host.workdir) & set(',"'):
            raise LaunchError(f'{host.workdir}: engines mount no folder with , or "; move it')
    if any(option.startswith(_MOUNTING) for option in settings_of(job.cluster).options):
        return  # any folder may be mounted by them
    for name, place in (("data", DATA), ("output", OUTPUT)):
        chosen = job.folder(name)
        if _below(chosen, place) is None:
            raise LaunchError(
                f"--{name}-dir {chosen}: in a container it is {place}; leave it out, and name the "
                f"hosts' folder with `docker: {{{name}: {chosen}}}`"
            )


def records_on_host(job: Job) -> str:
    """Returns the folder on a host with the training's records, relative to the working directory.

    Raises:
      LaunchError: arguments name folders that no container has.
    """
    check_folders(job)
    below = _below(job.folder("data"), DATA) or "."
    return posixpath.normpath(posixpath.join(_data(job.cluster), below))


def _below(folder: str, place: str) -> Optional[str]:
    """Returns a container's folder relative to one of its mounts; None if it is not inside it."""
    path = posixpath.normpath(posixpath.join(_CODE, folder))
    inside = path == place or path.startswith(f"{place}/")
    return posixpath.relpath(path, place) if inside else None


def _data(cluster: Cluster) -> str:
    return settings_of(cluster).data or "data"


def _output(cluster: Cluster) -> str:
    return settings_of(cluster).output or "output"


def _mounts(cluster: Cluster) -> list[tuple[str, str, bool]]:
    """(folder on the host, in the container, whether it is only read) of every trainer."""
    return [(_data(cluster), DATA, True), (_output(cluster), OUTPUT, False)]


def _with_commands(job: Job, prefix: str, words: Callable[[Task], list[str]]) -> Job:
    settings = settings_of(job.cluster)

    def command(task: Task) -> tuple[str, ...]:
        return (
            settings.engine,
            "run",
            *words(task),
            f"--name={prefix}-{task.name.replace('/', '-')}",
            "--rm",
            "--network=host",
            "--pull=never",  # a short name would be anybody's image in a public registry
            "--log-driver=none",  # the output is the client's; a copy would fill the disk
            *settings.options,
            settings.image,
            f"{_CODE}/{SCRIPT}",
            *job.arguments,
        )

    return replace(job, tasks=tuple(replace(task, argv=command(task)) for task in job.tasks))


def _details(job: Job, task: Task) -> list[str]:
    """Returns the options that an agent would add, as far as they are known without it."""
    names = ["TF_CONFIG", *variables(job)]
    if task.devices.gpus is not None:
        names.append("CUDA_VISIBLE_DEVICES")
    words = [f"--env={name}" for name in names]
    if task.devices.gpus:
        words += gpu_words(settings_of(job.cluster).engine)
    if task.task_type != "ps":
        words += [
            mount(_here(task.host, source), target, readonly=readonly)
            for source, target, readonly in _mounts(job.cluster)
        ]
    return words


def _here(host: Host, folder: str) -> str:
    home = folder.startswith("~/")
    return folder if home else posixpath.join(host.workdir, folder)


def _for_a_shell(word: str) -> str:
    """Quotes a word, but lets the shell fill in what no engine knows: the user's ids and home."""
    if word == _USER:
        return f'--user="{_USER_IDS}"'
    before, home, path = word.partition("~/")
    if home and before in ("", "--mount=type=bind,source="):
        return f'{before}"$HOME"{shlex.quote(f"/{path}")}'
    return shlex.quote(word)
