"""`python -m launch VERB`: the command line.

What a verb needs is imported when it runs, so that every verb starts quickly.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, Optional

from cifar10_program import LAUNCH, TRAIN, started_as
from cifar10_program.completion import add_common
from cifar10_program.paths import path_of
from cifar10_program.streams import complain, open_streams
from launch.backends.registry import KINDS, backend_named
from launch.cluster.kind import ALL_TASKS_HERE, Kind
from launch.cluster.model import MAX_TASKS, PYTHON_RULE, Cluster
from launch.errors import HostError, LaunchError
from launch.screen.plain import plain_lines

_EPILOG = """\
TRAINING ARGS, after `--`, go to {train}, the same for every task:
  {launch} plan --hosts ip0,ip1 -- --train-batch-size=16
  {launch} up --on local --workers 2 --ps 1 -- --train-batch-size=16
  {launch} up --cluster lab.yaml -- --data-dir /data/data --output-dir /data/output
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line and returns its exit code; a mistake of the user gives 2.

    A file or a host that cannot be used gives 1.
    """
    open_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    try:
        options = _parse(words[:split])
        options.arguments = words[split + 1 :]
        run_verb, _ = _VERBS[options.verb]
        if options.arguments and not hasattr(options, "cluster"):
            raise LaunchError(f"{options.verb} takes no training arguments after --")
        if any(word.startswith(("--config", "--recipe")) for word in options.arguments):
            from launch.cluster.training_files import with_settings

            options.arguments = with_settings(options.arguments)
        return run_verb(options)
    except LaunchError as error:
        complain(f"error: {plain_lines(str(error))}")
        return error.exit_code
    except BrokenPipeError:  # The reader, such as `head`, has ended.
        return 0
    except OSError as error:  # such as a full disk, or a folder of another user
        place = "" if error.filename is None else f"{error.filename}: "
        complain(f"error: {plain_lines(f'{place}{error.strerror or error}')}")
        return HostError.exit_code
    except KeyboardInterrupt:
        return 130


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    options, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"unknown: {' '.join(unknown)}; the training's own arguments go after --")
    return options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{self.format_usage()}{self.prog}: error: {message}")
        raise SystemExit(2)


# Flags that do not go with --cluster or --hosts -> why, and what to do instead.
_SAID_BY_A_FILE = dict.fromkeys(
    ("hosts", "workers", "ps", "nodes", "evaluator", "python", "workdir"),
    "the cluster file sets this; change it there",
)
_SAID_BY_HOSTS = dict.fromkeys(
    ("workers", "ps", "nodes"),
    "--hosts decides each host's tasks; leave it out, or set `roles:` in a file (--cluster)",
)


def _refused_by(kind: Kind) -> dict[str, str]:
    """Returns the flags that a backend cannot use -> why, and what to do instead."""
    refused = {}
    if kind.is_this_machine:
        refused["hosts"] = ALL_TASKS_HERE
    if kind.chooses_hosts:
        refused["hosts"] = "it chooses the hosts itself; give --workers and --ps instead"
    else:
        takes_it = "only a backend that chooses the hosts takes it, such as slurm"
        refused["nodes"] = f"{takes_it}; leave it out"
    if kind.host_per_task:
        refused["nodes"] = "it chooses a node for each task; leave it out"
    if kind.has_image:
        refused["python"] = "the image has its own Python; leave it out"
    if kind.has_image and kind.chooses_hosts:
        refused["workdir"] = "the image holds the code; leave it out"
    return refused


def cluster_of(options: argparse.Namespace) -> Cluster:
    """Returns the cluster that --cluster, --hosts, or --on with counts of tasks describes.

    Raises:
      LaunchError: no cluster is described, or a flag does not go with the description.
    """
    from launch.cluster import host_list

    if options.cluster is not None:
        from launch.cluster.cluster_file import read_cluster

        _refuse_flags(options, "--cluster", _SAID_BY_A_FILE)
        return read_cluster(options.cluster, KINDS, options.on)
    kind = KINDS[options.on or "ssh"]
    if options.on is not None:
        _refuse_flags(options, f"--on {kind.name}", _refused_by(kind))
    place = (options.python, options.workdir)
    if options.hosts is not None:
        _refuse_flags(options, "--hosts", _SAID_BY_HOSTS)
        cluster = host_list.from_hosts(options.hosts, *place, options.evaluator)
        return replace(cluster, backend=kind.name, ports=kind.default_ports)
    workers, ps = options.workers or 0, 1 if options.ps is None else options.ps
    if kind.is_this_machine:
        return host_list.on_this_machine(workers, ps, *place, options.evaluator)
    if kind.chooses_hosts:
        lead = "chief" if options.evaluator else "master"
        counts = {lead: 1, "worker": workers, "ps": ps, "evaluator": int(options.evaluator)}
        return host_list.on_chosen_hosts(kind, counts, options.nodes, *place)
    if options.on is not None:
        raise LaunchError(f"--on {kind.name} needs hosts; name them with --hosts or --cluster")
    raise LaunchError("no cluster: say where to run with --hosts, --cluster or --on local")


def _refuse_flags(options: argparse.Namespace, way: str, refused: Mapping[str, str]) -> None:
    """Refuses flags that have no meaning beside another flag.

    Args:
      options: the parsed command line.
      way: the other flag, for the message.
      refused: name of a flag -> why it is refused, and what to do instead.

    Raises:
      LaunchError: one of the flags is given.
    """
    for flag, words in refused.items():
        value = getattr(options, flag)
        if value is not None and value is not False:
            given = f"--{flag}" if value is True else f"--{flag} {value}"
            raise LaunchError(f"{given} does not go with {way}: {words}")


def _parser() -> _Parser:
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
        for name, (_, words) in _VERBS.items()
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


def _python(text: str) -> str:
    try:
        return str(PYTHON_RULE(_filled(text)))
    except LaunchError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
    parser.add_argument("--python", type=_python, metavar="PATH", help="the training's Python")
    parser.add_argument(
        "--workdir",
        type=_filled,
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


def _plan(options: argparse.Namespace) -> int:
    from launch.cluster.show import as_documents
    from launch.cluster.tasks import make_job

    job = make_job(cluster_of(options), options.arguments)
    backend = backend_named(job.cluster.backend)
    if options.shell:
        print(as_documents(backend.plan(job)))
    else:
        print(backend.plan_json(job) if options.json else backend.plan_text(job))
    return 0


def _init(options: argparse.Namespace) -> int:
    from launch.verbs.init import init

    return init(options)


def _setup(options: argparse.Namespace) -> int:
    from launch.verbs.setup import setup, with_python

    return setup(with_python(cluster_of(options), options), options)


def _check(options: argparse.Namespace) -> int:
    from launch.cluster.tasks import make_job
    from launch.verbs.check import check

    return check(make_job(cluster_of(options), options.arguments))


def _up(options: argparse.Namespace) -> int:
    from launch.verbs.up import up

    return up(cluster_of(options), options)


def _on_a_run(options: argparse.Namespace) -> int:
    from launch.verbs import runs

    verb: Callable[[argparse.Namespace], int] = getattr(runs, options.verb)
    return verb(options)


def _attach(options: argparse.Namespace) -> int:
    from launch.verbs.attach import attach

    return attach(options)


def _list(options: argparse.Namespace) -> int:
    from launch.verbs.listing import list_runs

    return list_runs(options)


def _logs(options: argparse.Namespace) -> int:
    from launch.verbs.logs import logs

    return logs(options)


# verb -> (the function that runs it, its description in the help)
_VERBS = {
    "init": (_init, "write a commented cluster file"),
    "plan": (_plan, "show every task's TF_CONFIG, command and devices"),
    "setup": (_setup, "prepare bare hosts: code, .venv, kernels and records"),
    "check": (_check, "check the hosts before a job"),
    "up": (_up, "run the job to its end"),
    "attach": (_attach, "show a run again until it ends; Ctrl-C leaves it running"),
    "list": (_list, "show all runs: state, age and accuracy"),
    "status": (_on_a_run, "show the state of each task of a run"),
    "logs": (_logs, "print the logs of tasks"),
    "stop": (_on_a_run, "end a run; the master saves first"),
    "clean": (_on_a_run, "end what a run has left behind on any host"),
}
