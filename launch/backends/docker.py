"""The docker backend: each task is a container, which an agent on its host starts by `docker run`.

The launcher reaches agents on other machines over ssh, and starts the one on its own machine
directly. The section of a cluster file:

docker:                           # each key is optional; lines show the default or an example
  image: cifar10                  # on every host: `docker save cifar10 | ssh node1 docker load`
  engine: docker                  # or podman, or a path to one of them
  data: /records                  # on the hosts; default: `data` in workdir
  output: /results                # default: `output` in workdir
  restricted: true                # what a container may do; false: all that the engine lets it
  options: [--shm-size=1g]        # further words for `docker run`
"""

import posixpath
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Optional

from launch.agent.containers import CODE, DATA, OUTPUT, gpu_words, mount, needs
from launch.agent.processes import RUN
from launch.backends import local, ssh
from launch.backends.base import Backend
from launch.cluster import show
from launch.cluster.host_list import is_this_machine
from launch.cluster.model import COMMAND_NAME, Cluster, Host
from launch.cluster.tasks import SCRIPT, Job, Task, folder_of
from launch.cluster.yaml_section import matching, option, setting, yes_or_no
from launch.connect.host_check import HostNeeds
from launch.errors import LaunchError
from launch.record.result import Result
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run import run_with_agents

_IMAGE = matching(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*", "an image, such as registry/cifar10:3")
_ENGINE = matching(COMMAND_NAME, "docker, podman, or a path of letters, digits, / . _ + -")
# Engines read the value of --mount as one row of a CSV file.
_FOLDER = matching(r'[^\0-\x1f\x7f-\x9f,"]+', 'a folder, without , and "')
# Options that the launcher sets itself, that would let a container outlive it, or that could show
# a secret.
_OURS = (
    "cidfile detach entrypoint env env-file label-file name net network pull restart rm sig-proxy "
    "user"
)

_USER = '--user="$(id -u):$(id -g)"'  # filled in by the shell that runs the line
# What training can do without. Programs of the user's own may need some of it: `restricted: false`.
_HARDENING = (
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--tmpfs=/tmp:rw,nosuid,nodev,noexec,mode=1777,size=1g",  # HOME in the image
)


@dataclass(frozen=True)
class DockerSettings:
    """The `docker:` section of a cluster file.

    Attributes:
      image: the image, with the code at /data and `python` as entry point, as the Dockerfile builds
        it. It must be on every host, because nothing is pulled.
      engine: `docker`, `podman`, or a path to one of them.
      data: the folder with the records on the hosts; relative paths start from the working
        directory. None means `data`.
      output: the folder for checkpoints and figures on the hosts. None means `output`.
      restricted: whether containers run without capabilities, with a read-only root file system,
        and without a way to gain rights.
      options: further words for `docker run`, each as `--name` or `--name=value`.
    """

    image: str = setting("cifar10", _IMAGE)
    engine: str = setting("docker", _ENGINE)
    data: Optional[str] = setting(None, _FOLDER)
    output: Optional[str] = setting(None, _FOLDER)
    restricted: bool = setting(True, yes_or_no)
    options: tuple[str, ...] = setting((), option(r"[^\0-\x1f\x7f-\x9f]", _OURS))


def is_here(host: Host) -> bool:
    """Returns whether an agent needs no ssh: the host is this machine, and no user is named."""
    return host.user is None and is_this_machine(host.name)


def _command(host: Host, words: Sequence[str], line: str, lease_secs: float) -> list[str]:
    here = [sys.executable, *words[1:]]
    return here if is_here(host) else ssh.TRANSPORT.command(host, words, line, lease_secs)


def _explain(host: Host, code: int, errors: str) -> str:
    transport = local.TRANSPORT if is_here(host) else ssh.TRANSPORT
    return transport.explain(host, code, errors)


class Docker(Backend):
    """Runs tasks in containers, on this machine and on others."""

    name = "docker"
    has_image = True
    settings = DockerSettings
    transport = replace(ssh.TRANSPORT, command=_command, explain=_explain)
    is_checked_first = True

    def plan(self, job: Job) -> list[show.Document]:
        """Returns for each host a line that makes its output folder, and runs its containers."""
        output = _folders(job.cluster)[OUTPUT]
        return show.shell_documents(
            planned(job), lambda host: f"mkdir -p {show.quoted_path(host.folder(output))}", line
        )

    def plan_text(self, job: Job) -> str:
        """Describes every task, with its `docker run` command quoted for a shell."""
        return show.as_text(planned(job), line)

    def output_folder(self, job: Job) -> str:
        """Returns the folder on the master's host that its container writes its results to."""
        return job.chief.host.folder(checked_folders(job)["output"])

    def needs(self, job: Job) -> HostNeeds:
        """Returns the engine, the image and the data folder that the hosts need."""
        settings, records = job.cluster.section(DockerSettings), checked_folders(job)["data"]
        return HostNeeds(records, settings.engine, settings.image, settings.data)

    def run(self, job: Job, folder: RunFolder, display: Display) -> Result:
        """Runs a container for each task, under an agent on each host."""
        engine = job.cluster.section(DockerSettings).engine
        folder.add(engine=engine)
        containers = {"engine": engine, "mounts": [*_folders(job.cluster).items()]}
        adapt = partial(for_agents, run_id=folder.run_id)
        return run_with_agents(job, folder, self.transport, display, adapt, containers)


def for_agents(job: Job, run_id: str) -> Job:
    """Returns the job with commands to which agents add the options that depend on the host."""
    names = ["TF_CONFIG", "CUDA_VISIBLE_DEVICES", RUN, *show.variables(job)]
    words = [f"--env={name}" for name in names]
    return _in_containers(job, run_id, lambda task: words)


def planned(job: Job) -> Job:
    """Returns the job with the commands that agents would run, as far as they are known here.

    Raises:
      LaunchError: `checked_folders` refuses a folder.
    """
    checked_folders(job)

    def words(task: Task) -> list[str]:
        chosen = [] if task.devices.gpus is None else ["CUDA_VISIBLE_DEVICES"]
        found = [_USER, *(f"--env={name}" for name in ["TF_CONFIG", *show.variables(job), *chosen])]
        found += gpu_words(job.cluster.section(DockerSettings).engine) if task.devices.gpus else []
        return found + [
            mount(task.host.folder(source), target)
            for target, source in _folders(job.cluster).items()
            if needs(target, job.cluster.program, is_ps=task.task_type == "ps")
        ]

    return _in_containers(job, "cifar10", words)


def line(task: Task) -> str:
    """Returns a task's command from `planned`, quoted for a shell."""
    return " ".join(map(_for_a_shell, task.argv))


def checked_folders(job: Job) -> dict[str, str]:
    """Returns the hosts' folders for training's `data` and `output`, from the working directory.

    Anything that is not mounted from the hosts would be missing in the container, or lost with it.

    Raises:
      LaunchError: `--data-dir` or `--output-dir`, which start from `--work-dir`, is outside the
        mounted folders.
    """
    found = {}
    for name, target in (("data", DATA), ("output", OUTPUT)):
        chosen = job.folder(name)
        below = posixpath.relpath(posixpath.join(CODE, chosen), target)
        if below.partition("/")[0] == "..":
            too = " and --work-dir" if folder_of(job.arguments, "work_dir") else ""
            raise LaunchError(
                f"--{name}-dir {chosen}: in a container it is {target}; leave it{too} out, and "
                f"name the hosts' folder with `docker: {{{name}: {chosen}}}`"
            )
        found[name] = posixpath.normpath(posixpath.join(_folders(job.cluster)[target], below))
    return found


def _folders(cluster: Cluster) -> dict[str, str]:
    """Returns the hosts' folders by what they are in the containers of all tasks but ps."""
    settings = cluster.section(DockerSettings)
    return {DATA: settings.data or "data", OUTPUT: settings.output or "output"}


def _in_containers(job: Job, prefix: str, words: Callable[[Task], Sequence[str]]) -> Job:
    """Returns the job with tasks that containers run.

    Args:
      job: the job, whose tasks are processes.
      prefix: how the containers' names begin.
      words: returns the options that belong to a task alone. Variables are given by name: their
        values are in the client's environment, so that no process list shows them.
    """
    settings = job.cluster.section(DockerSettings)
    alike = (
        "--rm",
        "--network=host",
        "--pull=never",  # a public registry may hold another image of this name
        "--log-driver=none",  # the client gets the output; another copy would fill the disk
        *(_HARDENING if settings.restricted else ()),
        *settings.options,
        settings.image,
        posixpath.join(CODE, job.cluster.program or SCRIPT),
        *job.arguments,
    )

    def argv(task: Task) -> tuple[str, ...]:
        name = f"--name={prefix}-{task.name.replace('/', '-')}"
        return (settings.engine, "run", *words(task), name, *alike)

    return replace(job, tasks=tuple(replace(task, argv=argv(task)) for task in job.tasks))


def _for_a_shell(word: str) -> str:
    """Quotes a word, but lets the shell expand the user's ids and home, which no engine does."""
    if word == _USER:
        return word
    before, home, path = word.partition("~/")
    if home and before in ("", "--mount=type=bind,source="):
        return before + show.quoted_path(f"~/{path}")
    return shlex.quote(word)
