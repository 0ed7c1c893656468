"""The model of a cluster: hosts, the tasks that each of them runs, and the rules of the job.

Every description (`--hosts`, a YAML file, `--on local`) becomes a frozen `Cluster`, which is
checked when it is made.
"""

import contextlib
import ipaddress
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from typing import Any, ClassVar, Optional, TypeVar

from launch.cluster.yaml_section import matching, seconds, seconds_or_off, setting, whole
from launch.errors import LaunchError

T = TypeVar("T")

CHIEFS = ("master", "chief")
TASK_TYPES = ("master", "chief", "worker", "ps", "evaluator")
# What reads records. Ports, GPUs and cores are assigned in this order; an evaluator has no port.
TRAINERS = (*CHIEFS, "worker", "evaluator")

MAX_TASKS = 2_000
FIRST_PORT = 2222  # for the first trainer of a host; its first ps takes the next port
FREE_PORTS = 0  # for hosts that several jobs may share: each host chooses them

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_IPV6 = r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?"  # more than that, but with all zones of links
USER_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
COMMAND_NAME = r"[A-Za-z0-9_/.][A-Za-z0-9_/.+-]*"

# No control characters: paths are printed.
PATH_RULE = matching(
    r"(?!~[^/])[^\0-\x1f\x7f-\x9f]+", "a path on one line, in no other user's home (~name)"
)
PYTHON_RULE = matching(
    r"(?!~)[^\0-\x1f\x7f-\x9f]+",
    "a command, or a path on one line without ~: an absolute one, or one from workdir, such as "
    ".venv/bin/python",
)
PROGRAM_RULE = matching(
    r"(?![~-])[^\0-\x1f\x7f-\x9f]+\.py",
    "the path of a script, such as own.py: an absolute one, or one from workdir, without ~",
)

NAME_RULE = matching(
    r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?", "at most 30 small letters, digits and -, from a letter on"
)


def host_name(text: str) -> str:
    """Reads a host's name or address; an IPv6 address may stand in brackets.

    Raises:
      LaunchError: it is neither; a number after it could mean three things, so it is refused.
    """
    address = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    with contextlib.suppress(ValueError):
        is_name = re.fullmatch(_NAME, text)
        if is_name or re.fullmatch(_IPV6, address) and ipaddress.IPv6Address(address):
            return address
    raise LaunchError(
        f"{text!r} is not a host: it must be NAME or USER@NAME, with a name of letters, digits, "
        f". _ - or an IPv6 address. Slots stand in a file for --hostfile; `ports:` in a cluster "
        f"file (default {FIRST_PORT}) sets the port of tasks, ~/.ssh/config that of ssh"
    )


_USER = matching(USER_NAME, "a user name of letters, digits, . _ -")
_VALUE = matching(r"[^\0]*", "text without NUL characters, which no process can be given")
_COMMAND = matching(COMMAND_NAME, "a command or path of letters, digits, / . _ + -")


@dataclass(frozen=True)
class Host:
    """A machine, and the tasks that it runs.

    A cluster file can give the settings for one host, or at its top for all hosts.

    Attributes:
      name: the name or address by which ssh reaches the host.
      address: the name or address at which the tasks on other hosts connect to this one.
      roles: (task type, number of tasks) pairs.
      user: the ssh user; None leaves the choice to the ssh configuration.
      python: the Python that runs the training; a relative path starts from `workdir`.
      workdir: the folder that holds cifar10_main.py.
      agent_python: the Python, 3.9 or newer, that runs the launcher's agent on the host.
      gpus: the number of GPUs; None if the description does not give it.
    """

    name: str
    address: str
    roles: tuple[tuple[str, int], ...]
    workdir: str = setting(MISSING, PATH_RULE)
    user: Optional[str] = setting(None, _USER)
    python: str = setting("python3", PYTHON_RULE)
    agent_python: str = setting("python3", _COMMAND)
    gpus: Optional[int] = setting(None, whole(0, 64))

    def count(self, *task_types: str) -> int:
        """Returns the number of this host's tasks of these types."""
        return sum(count for task_type, count in self.roles if task_type in task_types)

    @property
    def login(self) -> str:
        """The host's name for ssh, as `USER@NAME` or `NAME`."""
        return f"{self.user}@{self.name}" if self.user else self.name

    def named(self, word: str) -> "Host":
        """Returns a copy with the name, and the user if given, of NAME or USER@NAME.

        Raises:
          LaunchError: `word` has another form, or a port.
        """
        user, at, name = word.rpartition("@")
        if at and not re.fullmatch(USER_NAME, user):
            rule = "it must be a name of letters, digits, . _ -"
            raise LaunchError(f"{user!r} is not a user: {rule}")
        name = host_name(name)
        return replace(self, name=name, address=name, user=user or self.user)

    def folder(self, path: str) -> str:
        """Returns the path of a folder that is named from `workdir`; one in the home stays."""
        return path if path.startswith("~/") else posixpath.join(self.workdir, path)

    @property
    def trains(self) -> bool:
        """Whether a task on this host reads records, as all types but ps do."""
        return self.count(*TRAINERS) > 0


class BackendFacts:
    """The facts about a backend that the description of a cluster depends on.

    Attributes:
      name: the backend's name in `--on` and `backend:`, and the key of its section in a cluster
        file.
      chooses_hosts: whether the backend chooses the hosts; users then give only the number of
        tasks of each type.
      tasks_share_hosts: whether several tasks may get one of the hosts that the backend chooses.
      is_this_machine: whether the backend runs all tasks on the launcher's machine.
      has_image: whether tasks run in an image, which has its own Python and code.
      default_ports: the ports of a cluster whose description gives none.
      settings: the dataclass of the backend's section in a cluster file, with fields made by
        `launch.cluster.yaml_section.setting`; None if there is no such section.
    """

    name: ClassVar[str]
    chooses_hosts: ClassVar[bool] = False
    tasks_share_hosts: ClassVar[bool] = True
    is_this_machine: ClassVar[bool] = False
    has_image: ClassVar[bool] = False
    default_ports: ClassVar[int] = FIRST_PORT
    settings: ClassVar[Optional[type]] = None

    def arranged(self, cluster: "Cluster") -> "Cluster":
        """Returns the cluster with its tasks on the hosts that the backend's settings ask for."""
        return cluster


_VARIABLE = matching(
    r"(?!TF_CONFIG$|LAUNCH_)[A-Za-z_][A-Za-z0-9_]*",
    "the name of a variable (letters, digits, _), and none that the launcher sets for each task",
)


def _ports(text: str) -> int:
    return FREE_PORTS if text in ("free", str(FREE_PORTS)) else whole(1, 65_535, "`free` or ")(text)


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds; None is no limit.

    Attributes:
      start_secs: the time from the start to the first training step.
      idle_secs: the time without output from any task, after the first training step.
      grace_secs: the time for the other tasks to end by themselves after the master has finished.
      stop_secs: the time for a task to save and end after it was asked to stop.
      lease_secs: the time without a message between the launcher and a host after which each
        considers the other lost.
      rejoin_secs: the time for a host that was lost to be reached again, if its tasks may be
        restarted; attempts to reach it are no restarts.
    """

    start_secs: Optional[float] = setting(600, seconds_or_off)
    idle_secs: Optional[float] = setting(1800, seconds_or_off)
    grace_secs: float = setting(30, seconds)
    stop_secs: float = setting(60, seconds)
    lease_secs: float = setting(30, seconds)
    rejoin_secs: float = setting(600, seconds)


@dataclass(frozen=True)
class Cluster:
    """A cluster, and the rules of its job.

    Attributes:
      ports: the port of each host's first trainer, or FREE_PORTS.
      gpus_per_task: the number of GPUs of each trainer; None divides a host's GPUs among its
        trainers, and gives none on Kubernetes.
      environment: (name, value) pairs of variables for every task.
      pass_environment: the names of variables that every task gets as the launcher has them.
      program: the script that tasks run, from `workdir`; None for cifar10_main.py.
      restarts: how often each task may be started again.
      name: a name for the run, which `list` and schedulers show; None for none.
      source: the flag or file that gave the description, for the record of the run.
      settings: backend name -> the settings of its section; without them, a backend uses its
        defaults.
    """

    hosts: tuple[Host, ...]
    backend: str = "ssh"
    gpus_per_task: Optional[int] = setting(None, whole(0, 64))
    ports: int = setting(FIRST_PORT, _ports)
    environment: tuple[tuple[str, str], ...] = setting((), _VALUE, key_rule=_VARIABLE)
    pass_environment: tuple[str, ...] = setting((), _VARIABLE)
    limits: Limits = Limits()
    program: Optional[str] = setting(None, PROGRAM_RULE)
    restarts: int = setting(0, whole(0, 1_000_000))
    name: Optional[str] = setting(None, NAME_RULE)
    source: str = "--hosts"
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        several = "; `roles:` in a cluster file gives it several tasks"
        _refuse_twice("host", (host.name for host in self.hosts), several)
        _refuse_twice("address", (host.address for host in self.hosts))
        _refuse_twice("variable", [*(name for name, _ in self.environment), *self.pass_environment])
        if self.count(*TASK_TYPES) > MAX_TASKS:
            raise LaunchError(
                f"{self.count(*TASK_TYPES):,} tasks: a cluster has at most {MAX_TASKS:,}, since "
                "each task's TF_CONFIG lists all of them; give fewer"
            )
        chiefs = self.count(*CHIEFS)
        if chiefs != 1:
            raise LaunchError(
                f"{chiefs} masters: a cluster has exactly one master or chief; "
                "give one host the role `master: 1`"
            )
        if self.count("evaluator") and self.count("master"):
            raise LaunchError(
                "a master evaluates itself, so it cannot go with an evaluator; "
                "call it `chief` or leave the evaluator out"
            )
        if self.count("evaluator") > 1:
            raise LaunchError(f"{self.count('evaluator')} evaluators: a cluster has at most one")

    def count(self, *task_types: str) -> int:
        """Returns how many tasks of these types there are on all hosts."""
        return sum(host.count(*task_types) for host in self.hosts)

    def section(self, settings: type[T]) -> T:
        """Returns the settings of a backend's section, or their defaults if there is no section."""
        found = (found for found in self.settings.values() if isinstance(found, settings))
        return next(found, settings())


def _refuse_twice(what: str, names: Iterable[str], hint: str = "") -> None:
    for name, number in Counter(names).items():
        if number > 1:
            raise LaunchError(f"{what} {name} is listed twice; list it once{hint}")
