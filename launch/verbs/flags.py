"""The flags of `python -m launch VERB`, and the cluster that they describe."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cifar10_program.paths import path_of
from launch.backends.registry import BACKENDS
from launch.cluster import host_list, model
from launch.cluster.model import Cluster
from launch.cluster.yaml_section import matching, whole
from launch.errors import LaunchError

Flag = tuple[Sequence[str], dict[str, Any]]  # its names, and what `argparse` is to know of it


def _switch(names: str, words: str) -> Flag:
    """Returns a flag without a value; its names are separated by spaces."""
    return names.split(), {"action": "store_true", "help": words}


def _value(
    name: str, metavar: str, words: str, rule: Callable[[str], Any] = str, **facts: Any
) -> Flag:
    """Returns a flag with a value that is not empty, as an unset variable of a shell would be."""

    def read(text: str) -> Any:
        if not text:
            raise argparse.ArgumentTypeError("must not be empty; leave it out for the default")
        try:
            return rule(text)
        except LaunchError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return (name,), {"type": read, "metavar": metavar, "help": words, **facts}


_IN_CHECKOUT = matching(r"(?!/)(?!.*\.\.).+", "a file of the checkout, such as requirements.lock")
_COUNT, _TASK_COUNT = whole(0, 999_999), whole(0, model.MAX_TASKS)
_WORKDIR = "the folder of the tasks, with cifar10_main.py unless the package is installed"
_PROGRAM = "a script of your own in place of cifar10_main.py"
_LOCK = "what .venv is made from (default: %(default)s; with GPUs: requirements-gpu.lock)"
_TASKS = "such as worker/0, or worker for all workers (default: all tasks)"
_SET = "a key of the cluster file, such as slurm.partition=gpu (repeatable)"
_STATE_DIR = "where runs are kept (default: ~/.local/state/cifar10-launch)"

LAYOUT = (
    _value("--hosts", "IP0,IP1", "master on the first, a ps on each; also node[01-04]"),
    _value("--hostfile", "FILE", "hosts as MPI has them: `node0 slots=4` is 4 workers"),
    (("--on",), {"choices": tuple(BACKENDS), "help": "where tasks run (default: ssh)"}),
    _value("--workers", "N", "workers beside the master, if no hosts are given", _TASK_COUNT),
    _value("--ps", "N", "number of parameter servers (default: 1)", _TASK_COUNT),
    _switch("--evaluator", "add a separate evaluator"),
    _value("--python", "PATH", "the training's Python", model.PYTHON_RULE),
    _value("--workdir", "DIR", _WORKDIR, model.PATH_RULE),
)
CLUSTER = (
    _value("--cluster", "FILE", "YAML description of the cluster"),
    *LAYOUT,
    _value("--nodes", "N", "slurm: number of hosts for the tasks", _TASK_COUNT),
    _value("--program", "FILE", _PROGRAM, model.PROGRAM_RULE),
    (("--set",), {"action": "append", "default": [], "metavar": "KEY=VALUE", "help": _SET}),
)
JSON = _switch("--json", "as JSON, in the form that docs/formats.md describes")
INIT = (*LAYOUT, _value("--out", "FILE", "default: %(default)s", default="cluster.yaml"))
PLAN = (
    *CLUSTER,
    JSON,
    _switch("--shell", "what to run by hand: a line for each node, or a script"),
)
SETUP = (
    *CLUSTER,
    _value("--requirements", "FILE", _LOCK, _IN_CHECKOUT, default="requirements.lock"),
)
LIST = (_value("--state-dir", "DIR", _STATE_DIR, path_of),)
UP = (
    *CLUSTER,
    *LIST,
    _value("--name", "NAME", "a name for the run, in list and schedulers", model.NAME_RULE),
    _value("--restarts", "N", "start a failed task again", _COUNT),
    _switch("--no-check", "start without checking the hosts"),
    _switch("--detach", "return when the job has started"),
    _switch("--dry-run --shell", "only show what would run or be submitted, as plan does"),
)
RUN = (*LIST, _value("--run", "ID", "by default the newest one"))
LOGS = (
    *RUN,
    _switch("-f --follow", "follow the log until the run ends"),
    _value("--tail", "N", "the last N lines", _COUNT),
    (("tasks",), {"nargs": "*", "metavar": "TASK", "help": _TASKS}),
)
CLEAN = (*RUN, _switch("--forget", "end nothing, but take the run off the list"))
STOP = (*RUN, _switch("--now", "end the tasks without saving"))


def cluster_of(options: argparse.Namespace) -> Cluster:
    """Returns the cluster that the flags or the cluster file describe, changed by further flags.

    Raises:
      LaunchError: no cluster is described, or a flag does not go with the description.
    """
    from launch.cluster.cluster_file import with_setting

    cluster = _described(options)
    for pair in options.set:
        cluster = with_setting(cluster, pair, BACKENDS)
    flags = {key: getattr(options, key, None) for key in ("program", "name", "restarts")}
    given = {key: value for key, value in flags.items() if value is not None}
    return BACKENDS[cluster.backend].arranged(replace(cluster, **given))


def _described(options: argparse.Namespace) -> Cluster:
    """Returns the cluster that --cluster, --hosts, or --on with counts of tasks describes."""

    def refuse(flags: str, way: str, why: str) -> None:
        for flag in flags.split():
            value = getattr(options, flag)
            if value is not None and value is not False:
                given = f"--{flag}" if value is True else f"--{flag} {value}"
                raise LaunchError(f"{given} does not go with {way}: {why}")

    if options.cluster is not None:
        from launch.cluster.cluster_file import read_cluster

        theirs = "hosts hostfile workers ps nodes evaluator python workdir"
        refuse(theirs, "--cluster", "the cluster file sets this; change it there")
        return read_cluster(options.cluster, BACKENDS, options.on)
    backend = BACKENDS[options.on or "ssh"]
    way = f"--on {backend.name}"
    if backend.is_this_machine or backend.chooses_hosts:
        refuse("hosts hostfile", way, "it needs none; give --workers and --ps, or --on ssh")
    if not backend.chooses_hosts:
        refuse("nodes", way, "only a backend that chooses the hosts takes it, such as slurm")
    if backend.has_image:
        inside = "python workdir" if backend.chooses_hosts else "python"
        refuse(inside, way, "the image has its own; leave it out")
    place = {"python": options.python, "workdir": options.workdir}
    if options.hosts is not None or options.hostfile is not None:
        given = "--hosts" if options.hosts is not None else "--hostfile"
        refuse("hostfile" if options.hosts else "", "--hosts", "give one of them")
        rule = f"{given} decides each host's tasks; leave it out, or set `roles:` in a file"
        refuse("workers ps", given, f"{rule} (--cluster)")
        hosts = options.hosts or host_list.read_hostfile(options.hostfile)
        cluster = host_list.from_hosts(hosts, **place, evaluator=options.evaluator)
        return replace(cluster, backend=backend.name, ports=backend.default_ports)
    tasks = (options.workers or 0, 1 if options.ps is None else options.ps)
    if backend.is_this_machine:
        return host_list.on_this_machine(*tasks, **place, evaluator=options.evaluator)
    if backend.chooses_hosts:
        counts = host_list.counts_of(*tasks, options.evaluator)
        return host_list.on_chosen_hosts(backend, counts, options.nodes, **place)
    raise LaunchError(
        f"{way} needs hosts: name them with --hosts, --hostfile or --cluster, or take --on local"
    )
