"""The cluster that the flags --cluster, --hosts and --on describe."""

import argparse
from collections.abc import Mapping
from dataclasses import replace

from launch.backends.registry import KINDS
from launch.cluster.model import Cluster, Kind
from launch.errors import LaunchError

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
        refused["hosts"] = "all tasks run on this machine; give --workers and --ps, or --on ssh"
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
