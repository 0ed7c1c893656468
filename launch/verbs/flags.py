"""The flags of `python -m launch VERB`, and what their values may be."""

import argparse
import dataclasses
import datetime
import os
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from cifar10_program.paths import path_of
from launch.backends.registry import KINDS
from launch.cluster.model import MAX_TASKS, PATH_RULE, PYTHON_RULE, Cluster, Host, Limits
from launch.errors import LaunchError

# What other launchers call it -> what it is here.
_ELSEWHERE = {
    "host H hostfile machinefile": "hosts are given by --hosts a,b or --cluster FILE",
    "worker num_workers np n nproc nproc_per_node nnodes num_processes num_machines": "--workers N "
    "gives the number of workers beside the master; with --hosts, each further host has one",
    "num_ps servers num_servers": "--ps N gives the number of parameter servers",
    "ps_hosts worker_hosts": "--hosts a,b puts a master or worker and a ps on each host; `roles:` "
    "in a cluster file (--cluster FILE) distributes them otherwise",
    "launcher platform scheduler": "--on local, ssh, docker, slurm or kubernetes says where",
    "port": "`ports:` is a key of cluster files (--cluster FILE)",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def hint(word: str) -> str:
    """Returns what an unknown flag is called here; empty if it is none that is known."""
    name = word.partition("=")[0].lstrip("-").replace("-", "_") if word.startswith("-") else ""
    for names, found in _ELSEWHERE.items():
        if name in names.split():
            return found
    fields = {one.name for kind in (Cluster, Host, Limits) for one in dataclasses.fields(kind)}
    return f"`{name}:` is a key of cluster files (--cluster FILE)" if name in fields else ""


class Flag(NamedTuple):
    """A flag: its names, and what `argparse` is to know of it."""

    names: tuple[str, ...]
    facts: dict[str, Any]


def flag(*names: str, **facts: Any) -> Flag:
    """Returns a flag; without a type, it says yes or, as one of `tasks`, its type is a text."""
    is_switch = not {"type", "choices", "nargs"} & set(facts)
    return Flag(names, {"action": "store_true", **facts} if is_switch else facts)


def filled(text: str) -> str:
    """Returns a text that is not empty, as an unset variable of a shell script would be."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty; leave it out for the default")
    return text


def _folder(text: str) -> str:
    return path_of(filled(text))


def _by(rule: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Returns a rule of cluster files as a type for argparse."""

    def read(text: str) -> Any:
        try:
            return rule(filled(text))
        except LaunchError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _requirements(text: str) -> str:
    if os.path.isabs(text) or ".." in text.split("/"):
        raise argparse.ArgumentTypeError(
            "must be a file of the checkout (copy it there), such as requirements.lock, got "
            f"{text!r}"
        )
    return filled(text)


def _count(text: str, most: int = 10**6 - 1) -> int:
    if not text.isdecimal() or len(text) > 6 or int(text) > most:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 0 to {most:,}, got {text[:40]!r}"
        )
    return int(text)


def _tasks(text: str) -> int:
    return _count(text, MAX_TASKS)


def moment(text: str) -> float:
    """Returns the time that `10m`, `1h30m` or `2026-01-31T12:00` means, in seconds since 1970.

    Raises:
      argparse.ArgumentTypeError: it means none.
    """
    if re.fullmatch(r"(?:[0-9]{1,6}[smhd])+", text):
        parts = re.findall(r"([0-9]+)([smhd])", text)
        return time.time() - sum(int(number) * _UNITS[unit] for number, unit in parts)
    try:
        # Python 3.9 and 3.10 do not know Z.
        return datetime.datetime.fromisoformat(re.sub("Z$", "+00:00", text)).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"must be a time ago, such as 30s, 10m, 1h30m or 2d, or a date and time, such as "
            f"2026-01-31T12:00, got {text[:40]!r}"
        ) from None


def _pattern(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(
            f"must be a regular expression, got {text[:40]!r}: {error}"
        ) from None


LAYOUT = (
    flag("--hosts", type=filled, metavar="IP0,IP1", help="master on the first, a ps on each"),
    flag("--on", choices=tuple(KINDS), help="where tasks run (default: ssh)"),
    flag(
        "--workers",
        type=_tasks,
        metavar="N",
        help="workers beside the master, if no hosts are given",
    ),
    flag("--ps", type=_tasks, metavar="N", help="number of parameter servers (default: 1)"),
    flag("--evaluator", help="add a separate evaluator"),
    flag("--python", type=_by(PYTHON_RULE), metavar="PATH", help="the training's Python"),
    flag(
        "--workdir",
        type=_by(PATH_RULE),
        metavar="DIR",
        help="the folder of the tasks, with cifar10_main.py unless the package is installed",
    ),
)
CLUSTER = (
    flag("--cluster", type=filled, metavar="FILE", help="YAML description of the cluster"),
    *LAYOUT,
    flag("--nodes", type=_tasks, metavar="N", help="slurm: number of hosts for the tasks"),
)
INIT = (
    *LAYOUT,
    flag(
        "--out",
        type=filled,
        default="cluster.yaml",
        metavar="FILE",
        help="the file to write (default: %(default)s)",
    ),
    flag("--force", help="replace the file if it is there"),
)
JSON = flag("--json", help="for programs")
PLAN = (*CLUSTER, JSON, flag("--shell", help="a line for each node, to run by hand"))
SETUP = (
    *CLUSTER,
    flag(
        "--requirements",
        type=_requirements,
        default="requirements.lock",
        metavar="FILE",
        help="what .venv is made from (default: %(default)s; with GPUs: requirements-gpu.lock)",
    ),
    flag(
        "--source",
        type=filled,
        metavar="PATH",
        help="make the records there, from this archive there or `synthetic`, instead of copying",
    ),
)
STATE = flag(
    "--state-dir",
    type=_folder,
    metavar="DIR",
    help="where runs are kept (default: ~/.local/state/cifar10-launch)",
)
LINES = flag("--lines", help="print lines, not the live table")
UP = (
    *CLUSTER,
    STATE,
    LINES,
    flag("--restarts", type=_count, metavar="N", help="start a failed task again"),
    flag("--no-check", help="start without checking the hosts"),
    flag("--detach", help="return when the job has started"),
)
RUN = (STATE, flag("--run", type=filled, metavar="ID", help="by default the newest one"))
CLEAN = (
    STATE,
    flag("--run", type=filled, metavar="ID", help="by default all without a launcher"),
)
LOGS = (
    *RUN,
    flag("-f", "--follow", help="follow the log until the run ends"),
    flag("--tail", type=_count, metavar="N", help="the last N lines of each task"),
    flag(
        "--since",
        type=moment,
        default=0.0,
        metavar="TIME",
        help="lines of the last 30s, 10m, 1h30m or 2d, or since a date and time",
    ),
    flag("--grep", type=_pattern, metavar="REGEX", help="lines in which this is found"),
    flag(
        "tasks",
        nargs="*",
        metavar="TASK",
        help="such as worker/0, or worker for all workers (default: all tasks)",
    ),
)
STOP = (*RUN, flag("--now", help="end the tasks without saving"))
