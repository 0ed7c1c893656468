"""Builds the `docker run` command of each task; all roles use one image and entry point."""

import posixpath
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Optional

from launch.agent.containers import DATA, OUTPUT, gpu_words, mount
from launch.agent.processes import RUN
from launch.agent.protocol import Message
from launch.backends.docker.settings import DockerSettings, settings_of
from launch.cluster import training_files
from launch.cluster.model import Cluster, Host
from launch.cluster.show import (
    Document,
    quoted_path,
    reached,
    refuse_free_ports,
    shell_command,
    variables,
)
from launch.cluster.tasks import SCRIPT, Job, Task
from launch.errors import LaunchError

_CODE = posixpath.dirname(DATA)  # the code's folder in the image, and its working directory
_USER_IDS = "$(id -u):$(id -g)"  # filled in by the shell that runs the line
_USER = f"--user={_USER_IDS}"
# What training can do without. Programs of the user's own may need some of it: `restricted: false`.
_RESTRICTIONS = (
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--read-only",
)
_TMP = "--tmpfs=/tmp:rw,nosuid,nodev,noexec,mode=1777,size=1g"  # HOME in the image
# Engines refuse a second one.
_OTHER_TMP = re.compile(r"--(tmpfs=|volume=.*:|mount=(.*,)?(target|dst|destination)=)/tmp([:,].*)?")
_MOUNTING = ("--mount=", "--volume=", "--volumes-from=")


def agent_setup(cluster: Cluster) -> Message:
    """Returns the engine and the mounts, which an agent must know to run containers."""
    return {"engine": settings_of(cluster).engine, "mounts": _mounts(cluster)}


def for_agents(job: Job, run_id: str) -> Job:
    """Returns the job with commands to which agents add the options that depend on the host."""
    # `--env=NAME` takes the value from the client's environment, so that no process list shows it.
    names = ["TF_CONFIG", "CUDA_VISIBLE_DEVICES", RUN, *variables(job)]
    return _with_commands(job, run_id, lambda task: [f"--env={name}" for name in names])


def for_programs(job: Job) -> Job:
    """Returns the job with commands that lack only `--user`.

    Raises:
      LaunchError: `check_folders` refuses a folder.
    """
    check_folders(job)
    return _with_commands(job, "cifar10", lambda task: _details(job, task))


def for_people(job: Job) -> Job:
    """Returns the job with complete commands, which `line` quotes for a shell."""
    check_folders(job)
    return _with_commands(job, "cifar10", lambda task: [_USER, *_details(job, task)])


def line(task: Task) -> str:
    """Returns a task's command from `for_people`, quoted for a shell."""
    return " ".join(map(_for_a_shell, task.argv))


def documents(job: Job) -> list[Document]:
    """Returns shell lines for each host, to run by hand.

    Raises:
      LaunchError: the job uses free ports, which are not known yet, or `check_folders` refuses a
        folder.
    """
    refuse_free_ports(job)
    job, found = for_people(job), []
    for host in job.cluster.hosts:
        tasks = job.on(host)
        lines = [f"{shell_command(task, variables(job), line(task))} &" for task in tasks]
        if host.trains:
            lines.insert(0, f"mkdir -p {_for_a_shell(host.folder(_output(job.cluster)))}")
        names = ", ".join(task.name for task in tasks)
        found.append(Document(f"{reached(host)}: {names}", "\n".join([*lines, "wait"])))
    return found


def check_folders(job: Job) -> None:
    """Checks that the data and output folders are mounted from the hosts.

    Anything else would be missing in the container, or lost with it.

    Raises:
      LaunchError: `--data-dir` or `--output-dir`, which start from `--work-dir`, is outside the
        mounted folders, or the engine cannot mount a host's working directory.
    """
    for host in job.cluster.hosts:
        if set(host.workdir) & set(',"'):
            raise LaunchError(f'{host.workdir}: engines mount no folder with , or "; move it')
    if any(option.startswith(_MOUNTING) for option in settings_of(job.cluster).options):
        return  # these options may mount any folder
    for name, place in (("data", DATA), ("output", OUTPUT)):
        chosen = job.folder(name)
        if _below(chosen, place) is None:
            too = " and --work-dir" if training_files.place(job.arguments, "work_dir") else ""
            raise LaunchError(
                f"--{name}-dir {chosen}: in a container it is {place}; leave it{too} out, and name "
                f"the hosts' folder with `docker: {{{name}: {chosen}}}`"
            )


def records_on_host(job: Job) -> str:
    """Returns the folder on a host with the training's records, relative to the working directory.

    Raises:
      LaunchError: `check_folders` refuses a folder.
    """
    check_folders(job)
    below = _below(job.folder("data"), DATA) or "."
    return posixpath.normpath(posixpath.join(_data(job.cluster), below))


def results_on_host(job: Job, host: Host) -> str:
    """Returns the folder on a host to which its containers write the training's results."""
    below = _below(job.folder("output"), OUTPUT) or "."
    return posixpath.normpath(posixpath.join(host.folder(_output(job.cluster)), below))


def _below(folder: str, place: str) -> Optional[str]:
    """Returns a container's folder relative to the mount `place`; None if it is outside."""
    path = posixpath.normpath(posixpath.join(_CODE, folder))
    inside = path == place or path.startswith(f"{place}/")
    return posixpath.relpath(path, place) if inside else None


def _data(cluster: Cluster) -> str:
    return settings_of(cluster).data or "data"


def _output(cluster: Cluster) -> str:
    return settings_of(cluster).output or "output"


def _mounts(cluster: Cluster) -> list[tuple[str, str, bool]]:
    """Returns the mounts of all tasks but ps: (host's folder, container's folder, read-only)."""
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
            "--pull=never",  # a public registry may hold another image of this name
            "--log-driver=none",  # the client gets the output; another copy would fill the disk
            *_restrictions(settings),
            *settings.options,
            settings.image,
            f"{_CODE}/{SCRIPT}",
            *job.arguments,
        )

    return replace(job, tasks=tuple(replace(task, argv=command(task)) for task in job.tasks))


def _restrictions(settings: DockerSettings) -> tuple[str, ...]:
    """Returns the options that restrict a container; a `/tmp` of the user's replaces this one."""
    if not settings.restricted:
        return ()
    has_other = any(_OTHER_TMP.fullmatch(option) for option in settings.options)
    return _RESTRICTIONS if has_other else (*_RESTRICTIONS, _TMP)


def _details(job: Job, task: Task) -> list[str]:
    """Returns those options that an agent would add and that are known without an agent."""
    names = ["TF_CONFIG", *variables(job)]
    if task.devices.gpus is not None:
        names.append("CUDA_VISIBLE_DEVICES")
    words = [f"--env={name}" for name in names]
    if task.devices.gpus:
        words += gpu_words(settings_of(job.cluster).engine)
    if task.task_type != "ps":
        words += [
            mount(task.host.folder(source), target, readonly=readonly)
            for source, target, readonly in _mounts(job.cluster)
        ]
    return words


def _for_a_shell(word: str) -> str:
    """Quotes a word, but lets the shell expand the user's ids and home, which no engine does."""
    if word == _USER:
        return f'--user="{_USER_IDS}"'
    before, home, path = word.partition("~/")
    if home and before in ("", "--mount=type=bind,source="):
        return before + quoted_path(f"~/{path}")
    return shlex.quote(word)
