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


def switch(names: str, words: str) -> Flag:
    """Returns a flag without a value; its names are separated by spaces."""
    return Flag(tuple(names.split()), {"action": "store_true", "help": words})


def value(name: str, metavar: str, words: str, **facts: Any) -> Flag:
    """Returns a flag with a value, by default a text that is not empty."""
    return Flag((name,), {"type": filled, "metavar": metavar, "help": words, **facts})


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
        rule = "must be a file of the checkout (copy it there), such as requirements.lock"
        raise argparse.ArgumentTypeError(f"{rule}, got {text!r}")
    return filled(text)


def _count(text: str, most: int = 10**6 - 1) -> int:
    if not text.isdecimal() or len(text) > 6 or int(text) > most:
        rule = f"must be a whole number from 0 to {most:,}"
        raise argparse.ArgumentTypeError(f"{rule}, got {text[:40]!r}")
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
        found = datetime.datetime.fromisoformat(re.sub("Z$", "+00:00", text))
        return found.astimezone(datetime.timezone.utc).timestamp()  # a year that UTC has, too
    except (ValueError, OverflowError):
        rule = "must be a time ago, such as 30s, 10m, 1h30m or 2d, or as 2026-01-31T12:00"
        raise argparse.ArgumentTypeError(f"{rule}, got {text[:40]!r}") from None


def _pattern(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        words = f"must be a regular expression, got {text[:40]!r}: {error}"
        raise argparse.ArgumentTypeError(words) from None


_WORKDIR = "the folder of the tasks, with cifar10_main.py unless the package is installed"
_LOCK = "what .venv is made from (default: %(default)s; with GPUs: requirements-gpu.lock)"
_SOURCE = "make the records there, from this archive there or `synthetic`, instead of copying"
_SINCE = "lines of the last 30s, 10m, 1h30m or 2d, or since a date and time"
_TASKS = "such as worker/0, or worker for all workers (default: all tasks)"
_STATE = "where runs are kept (default: ~/.local/state/cifar10-launch)"

LAYOUT = (
    value("--hosts", "IP0,IP1", "master on the first, a ps on each"),
    Flag(("--on",), {"choices": tuple(KINDS), "help": "where tasks run (default: ssh)"}),
    value("--workers", "N", "workers beside the master, if no hosts are given", type=_tasks),
    value("--ps", "N", "number of parameter servers (default: 1)", type=_tasks),
    switch("--evaluator", "add a separate evaluator"),
    value("--python", "PATH", "the training's Python", type=_by(PYTHON_RULE)),
    value("--workdir", "DIR", _WORKDIR, type=_by(PATH_RULE)),
)
CLUSTER = (
    value("--cluster", "FILE", "YAML description of the cluster"),
    *LAYOUT,
    value("--nodes", "N", "slurm: number of hosts for the tasks", type=_tasks),
)
INIT = (
    *LAYOUT,
    value("--out", "FILE", "the file to write (default: %(default)s)", default="cluster.yaml"),
    switch("--force", "replace the file if it is there"),
)
JSON = switch("--json", "for programs")
PLAN = (*CLUSTER, switch("--shell", "a line for each node, to run by hand"))
SETUP = (
    *CLUSTER,
    value("--requirements", "FILE", _LOCK, type=_requirements, default="requirements.lock"),
    value("--source", "PATH", _SOURCE),
)
STATE = value("--state-dir", "DIR", _STATE, type=_folder)
LINES = switch("--lines", "print lines, not the live table")
UP = (
    *CLUSTER,
    STATE,
    LINES,
    value("--restarts", "N", "start a failed task again", type=_count),
    switch("--no-check", "start without checking the hosts"),
    switch("--detach", "return when the job has started"),
)
RUN = (STATE, value("--run", "ID", "by default the newest one"))
CLEAN = (STATE, value("--run", "ID", "by default all without a launcher"))
LOGS = (
    *RUN,
    switch("-f --follow", "follow the log until the run ends"),
    value("--tail", "N", "the last N lines of each task", type=_count),
    value("--since", "TIME", _SINCE, type=moment, default=0.0),
    value("--grep", "REGEX", "lines in which this is found", type=_pattern),
    Flag(("tasks",), {"nargs": "*", "metavar": "TASK", "help": _TASKS}),
)
STOP = (*RUN, switch("--now", "end the tasks without saving"))
