"""The flags of `python -m launch VERB`."""

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from cifar10_program import LAUNCH, TRAIN, started_as
from cifar10_program.common_flags import add_common
from cifar10_program.paths import path_of
from cifar10_program.streams import complain
from launch.backends.registry import KINDS
from launch.cluster.model import MAX_TASKS, PATH_RULE, PYTHON_RULE, Cluster, Host, Limits
from launch.cluster.yaml_section import Rule
from launch.errors import LaunchError
from launch.screen.plain import plain_lines

_EPILOG = """\
TRAINING ARGS, after `--`, go to {train}, the same for every task:
  {launch} plan --hosts ip0,ip1 -- --train-batch-size=16
  {launch} up --on local --workers 2 --ps 1 -- --train-batch-size=16
  {launch} up --cluster lab.yaml -- --data-dir /data/data --output-dir /data/output
"""
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


def parse(words: Sequence[str], descriptions: Mapping[str, str]) -> argparse.Namespace:
    """Parses the words before `--`; a mistake or a flag such as --help ends the program.

    Args:
      words: the words of the command line.
      descriptions: description in the help, by verb.
    """
    parser = _parser(descriptions)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        hints = dict.fromkeys(hint for word in unknown if (hint := _hint(word)))
        way_out = "; ".join(hints) or "the training's own arguments go after --"
        parser.error(f"unknown: {' '.join(unknown)}; {way_out}")
    return options


def _hint(word: str) -> str:
    """Returns what an unknown flag is called here; empty if it is none that is known."""
    name = word.partition("=")[0].lstrip("-").replace("-", "_") if word.startswith("-") else ""
    for names, hint in _ELSEWHERE.items():
        if name in names.split():
            return hint
    fields = {one.name for kind in (Cluster, Host, Limits) for one in dataclasses.fields(kind)}
    return f"`{name}:` is a key of cluster files (--cluster FILE)" if name in fields else ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"error: {plain_lines(message)}; see {self.prog} --help")
        raise SystemExit(2)


def _parser(descriptions: Mapping[str, str]) -> _Parser:
    parser = _Parser(
        prog=started_as(LAUNCH),
        allow_abbrev=False,
        description="Runs a training job on a cluster of hosts.",
        epilog=_EPILOG.format(train=started_as(TRAIN).split()[-1], launch=started_as(LAUNCH)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(parser, LAUNCH)
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs = {
        name: subparsers.add_parser(name, allow_abbrev=False, help=words)
        for name, words in descriptions.items()
    }
    for name in ("plan", "setup", "check", "up"):
        _add_cluster(verbs[name])
    for name in ("attach", "status", "logs", "stop", "clean"):
        default = "all without a launcher" if name == "clean" else "the newest one"
        verbs[name].add_argument("--run", type=_filled, metavar="ID", help=f"by default {default}")
    where = "where runs are kept (default: ~/.local/state/cifar10-launch)"
    for name in ("up", "attach", "list", "status", "logs", "stop", "clean"):
        verbs[name].add_argument("--state-dir", type=_folder, metavar="DIR", help=where)
    form = verbs["plan"].add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument("--shell", action="store_true", help="a line for each node, to run by hand")
    _add_init(verbs["init"])
    _add_setup(verbs["setup"])
    up, logs = verbs["up"], verbs["logs"]
    up.add_argument("--restarts", type=_count, metavar="N", help="start a failed task again")
    up.add_argument("--no-check", action="store_true", help="start without checking the hosts")
    up.add_argument("--detach", action="store_true", help="return when the job has started")
    for verb in (up, verbs["attach"]):
        verb.add_argument("--lines", action="store_true", help="print lines, not the live table")
    verbs["list"].add_argument("--json", action="store_true", help="for programs")
    logs.add_argument(
        "-f", "--follow", action="store_true", help="follow the log until the run ends"
    )
    _add_choice_of_lines(logs)
    verbs["stop"].add_argument("--now", action="store_true", help="end the tasks without saving")
    return parser


def _add_choice_of_lines(parser: argparse.ArgumentParser) -> None:
    from launch.verbs.moments import moment, pattern

    parser.add_argument("--tail", type=_count, metavar="N", help="the last N lines of each task")
    parser.add_argument(
        "--since",
        type=moment,
        default=0.0,
        metavar="TIME",
        help="lines of the last 30s, 10m, 1h30m or 2d, or since a date and time",
    )
    parser.add_argument(
        "--grep", type=pattern, metavar="REGEX", help="lines in which this is found"
    )
    parser.add_argument(
        "tasks",
        nargs="*",
        metavar="TASK",
        help="such as worker/0, or worker for all workers (default: all tasks)",
    )


def _filled(text: str) -> str:
    # An unset variable of a shell script would otherwise mean the current folder or any run.
    if not text:
        raise argparse.ArgumentTypeError("must not be empty; leave it out for the default")
    return text


def _folder(text: str) -> str:
    return path_of(_filled(text))


def _as_in_a_file(rule: Rule) -> Rule:
    """Returns a rule of cluster files as a type for argparse."""

    def read(text: str) -> Any:
        try:
            return rule(_filled(text))
        except LaunchError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _requirements(text: str) -> str:
    if os.path.isabs(text) or ".." in text.split("/"):
        raise argparse.ArgumentTypeError(
            "must be a file of the checkout (copy it there), such as requirements.lock, got "
            f"{text!r}"
        )
    return _filled(text)


def _tasks(text: str) -> int:
    if not text.isdecimal() or len(text) > 6 or int(text) > MAX_TASKS:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 0 to {MAX_TASKS:,}, got {text[:40]!r}"
        )
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, got {text!r}")
    return int(text)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster", type=_filled, metavar="FILE", help="YAML description of the cluster"
    )
    _add_layout(parser)
    parser.add_argument(
        "--nodes", type=_tasks, metavar="N", help="slurm: number of hosts for the tasks"
    )


def _add_layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hosts", type=_filled, metavar="IP0,IP1", help="master on the first, a ps on each"
    )
    parser.add_argument("--on", choices=tuple(KINDS), help="where tasks run (default: ssh)")
    parser.add_argument(
        "--workers",
        type=_tasks,
        metavar="N",
        help="workers beside the master, if no hosts are given",
    )
    parser.add_argument(
        "--ps", type=_tasks, metavar="N", help="number of parameter servers (default: 1)"
    )
    parser.add_argument("--evaluator", action="store_true", help="add a separate evaluator")
    python = _as_in_a_file(PYTHON_RULE)
    parser.add_argument("--python", type=python, metavar="PATH", help="the training's Python")
    parser.add_argument(
        "--workdir",
        type=_as_in_a_file(PATH_RULE),
        metavar="DIR",
        help="the folder of the tasks, with cifar10_main.py unless the package is installed",
    )


def _add_init(parser: argparse.ArgumentParser) -> None:
    _add_layout(parser)
    parser.add_argument(
        "--out",
        type=_filled,
        default="cluster.yaml",
        metavar="FILE",
        help="the file to write (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")


def _add_setup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requirements",
        type=_requirements,
        default="requirements.lock",
        metavar="FILE",
        help="what .venv is made from (default: %(default)s; with GPUs: requirements-gpu.lock)",
    )
    parser.add_argument(
        "--source",
        type=_filled,
        metavar="PATH",
        help="make the records there, from this archive there or `synthetic`, instead of copying",
    )
