"""`python -m launch VERB`: the command line.

What a verb needs is imported when it runs, so that every one of them starts at once.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from launch.backends.registry import KINDS, backend_named
from launch.cluster.kind import ALL_TASKS_HERE, Kind
from launch.cluster.model import Cluster
from launch.errors import LaunchError

_EPILOG = """\
TRAINING ARGS, after `--`, go to cifar10_main.py as they are, the same for every task:
  python -m launch plan --hosts ip0,ip1 -- --train-batch-size=16
  python -m launch up --on local --workers 2 --ps 1 -- --train-batch-size=16
  python -m launch up --cluster lab.yaml -- --data-dir /data/data --output-dir /data/output
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line and returns the exit code: 2 for a mistake of the user's."""
    words = list(sys.argv[1:] if argv is None else argv)
    ours, arguments = words, []
    if "--" in words:
        ours, arguments = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = _parser()
    options, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(f"unknown: {' '.join(unknown)}; the training's own arguments go after --")
    if arguments and not hasattr(options, "cluster"):
        print(f"error: {options.verb} takes no training arguments after --", file=sys.stderr)
        return 2
    options.arguments = arguments
    try:
        return _VERBS[options.verb](options)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # `| head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


# (flag, whether a backend refuses it, why and what to do instead)
_REFUSED: tuple[tuple[str, Callable[[Kind], bool], str], ...] = (
    (
        "hosts",
        lambda kind: kind.is_this_machine,
        ALL_TASKS_HERE,
    ),
    (
        "hosts",
        lambda kind: kind.chooses_hosts,
        "it chooses the hosts itself; give --workers and --ps instead",
    ),
    (
        "nodes",
        lambda kind: not kind.chooses_hosts,
        "only a backend that chooses the hosts takes it, such as slurm; leave it out",
    ),
    (
        "nodes",
        lambda kind: kind.host_per_task,
        "it chooses a node for each task; leave it out",
    ),
    ("python", lambda kind: kind.has_image, "the image has its own Python; leave it out"),
    (
        "workdir",
        lambda kind: kind.has_image and kind.chooses_hosts,
        "the image holds the code; leave it out",
    ),
)
# What --cluster and --hosts say already -> why, and what to do instead.
_SAID_BY_A_FILE = "a cluster file says it itself; write it there"
_SAID_BY_HOSTS = (
    "each host has its tasks; leave it out, or say `roles:` of each host in a file (--cluster)"
)
_SAID = {
    "cluster": dict.fromkeys(
        ("hosts", "workers", "ps", "nodes", "evaluator", "python", "workdir"), _SAID_BY_A_FILE
    ),
    "hosts": dict.fromkeys(("workers", "ps", "nodes"), _SAID_BY_HOSTS),
}


def cluster_of(options: argparse.Namespace) -> Cluster:
    """The cluster that --cluster, --hosts, or --on with counts of tasks describes.

    Raises:
      LaunchError: none of them does, or a flag does not go with it.
    """
    from launch.cluster import host_list

    if options.cluster is not None:
        from launch.cluster.cluster_file import read_cluster

        _refuse_flags(options, "--cluster", _SAID["cluster"])
        return read_cluster(options.cluster, KINDS, options.on)
    kind = KINDS[options.on or "ssh"]
    refused = {flag: words for flag, refuses, words in _REFUSED if refuses(kind)}
    if options.on is not None:
        _refuse_flags(options, f"--on {kind.name}", refused)
    place = (options.python, options.workdir)
    if options.hosts is not None:
        _refuse_flags(options, "--hosts", _SAID["hosts"])
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
    """Refuses flags that are given although they mean nothing beside another one.

    Args:
      options: the command line.
      way: the other one, in words.
      refused: flag -> why, and what to do instead.
    """
    for flag, words in refused.items():
        value = getattr(options, flag)
        if value is not None and value is not False:
            given = f"--{flag}" if value is True else f"--{flag} {value}"
            raise LaunchError(f"{given} does not go with {way}: {words}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m launch",
        allow_abbrev=False,
        description="From a list of hosts to a finished cluster job.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    plan = verbs.add_parser(
        "plan", allow_abbrev=False, help="show every task's TF_CONFIG, command and devices"
    )
    _add_cluster(plan)
    form = plan.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for programs")
    form.add_argument("--shell", action="store_true", help="a line for each node, to run by hand")
    check = verbs.add_parser(
        "check", allow_abbrev=False, help="go through the hosts before a job does"
    )
    _add_cluster(check)
    up = verbs.add_parser("up", allow_abbrev=False, help="run the job to its end")
    _add_cluster(up)
    up.add_argument("--restarts", type=_count, metavar="N", help="start a failed task again")
    up.add_argument("--no-check", action="store_true", help="start without looking at the hosts")
    up.add_argument("--lines", action="store_true", help="prefixed lines on a terminal, too")
    for name, words in _ON_RUNS.items():
        verb = verbs.add_parser(name, allow_abbrev=False, help=words)
        verb.add_argument("--run", metavar="ID", help="by default the newest one")
        _add_state_dir(verb)
        if name == "logs":
            verb.add_argument("-f", "--follow", action="store_true", help="until the run is over")
            verb.add_argument("task", nargs="?", metavar="TASK", help="such as worker/0")
        elif name == "stop":
            verb.add_argument("--now", action="store_true", help="without saving")
    _add_state_dir(up)
    return parser


_ON_RUNS = {
    "status": "where each task of a run stands",
    "logs": "what a task has written",
    "stop": "end a run in order: the master saves",
    "clean": "end what a run has left behind, on every host",
}


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, got {text!r}")
    return int(text)


def _add_state_dir(parser: argparse.ArgumentParser) -> None:
    where = "where runs are kept (default: ~/.local/state/cifar10-launch)"
    parser.add_argument("--state-dir", metavar="DIR", help=where)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", metavar="FILE", help="YAML description of the cluster")
    parser.add_argument("--hosts", metavar="IP0,IP1", help="master on the first, a ps on each")
    parser.add_argument("--on", choices=tuple(KINDS), help="where tasks run (default: ssh)")
    parser.add_argument(
        "--workers", type=_count, metavar="N", help="besides the master, without hosts"
    )
    parser.add_argument("--ps", type=_count, metavar="N", help="how many (default: 1)")
    parser.add_argument("--nodes", type=_count, metavar="N", help="slurm: hosts for the tasks")
    parser.add_argument("--evaluator", action="store_true", help="one, beside a chief")
    parser.add_argument("--python", metavar="PATH", help="the training's Python")
    parser.add_argument("--workdir", metavar="DIR", help="the folder with cifar10_main.py")


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


def _check(options: argparse.Namespace) -> int:
    from launch.cluster.tasks import make_job
    from launch.verbs.check import check

    return check(make_job(cluster_of(options), options.arguments))


def _up(options: argparse.Namespace) -> int:
    from launch.verbs.up import up

    return up(cluster_of(options), options)


def _on_runs(options: argparse.Namespace) -> int:
    from launch.verbs import runs

    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "status": runs.status,
        "logs": runs.logs,
        "stop": runs.stop,
        "clean": runs.clean,
    }
    return verbs[options.verb](options)


_VERBS = {"plan": _plan, "check": _check, "up": _up, **dict.fromkeys(_ON_RUNS, _on_runs)}
