"""`setup`: prepares bare hosts, so that `check` finds nothing missing; then checks them."""

import argparse
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch.backends.agent_backend import AgentBackend
from launch.backends.registry import backend_named
from launch.cluster.host_list import code_folder, default_python
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import Job, make_job
from launch.connect.everywhere import everywhere
from launch.connect.transport import Transport
from launch.errors import HostError, LaunchError
from launch.screen.bars import Bars
from launch.screen.plain import plain_lines
from launch.supervise.run_loop import stop_signals
from launch.verbs.facts import SETUP_PYTHON
from launch.verbs.setup_files import code_files, records
from launch.verbs.setup_steps import HostSetup, Wanted

_AT_ONCE = 16  # hosts, which share the bandwidth of this machine
# Why setup does nothing with a backend -> what to do instead.
_NOT_HERE = {
    "docker": "tasks run in the image, which setup does not copy: `docker save IMAGE | ssh HOST "
    "docker load` for each host, and the records into its `data:` folder",
    "slurm": "its nodes share a folder: `make venv` and the records there are enough",
    "kubernetes": "tasks run in the image, which the nodes pull; the records are in the volume "
    "`data:`",
    "local": "tasks run in this checkout: `make venv` prepares it",
}


def setup(cluster: Cluster, options: argparse.Namespace) -> int:
    """Prepares all hosts in parallel, then checks them; returns the exit code of the check.

    A signal that ends it gives 128 and its number, such as 130 for Ctrl-C.

    Raises:
      LaunchError: the tasks do not run as processes over ssh, or a flag is wrong.
    """
    backend = backend_named(cluster.backend)
    if cluster.backend != "ssh" or not isinstance(backend, AgentBackend):
        why = _NOT_HERE.get(cluster.backend, "its tasks are no processes that ssh starts")
        raise LaunchError(f"setup prepares hosts of --on ssh, not of {cluster.backend}: {why}")
    job = make_job(cluster, options.arguments)
    wanted = _wanted(job, options)
    with stop_signals() as stops:
        failed = _prepare(cluster, wanted, backend.transport, stops)
    if stops:
        print("stopped; the same command goes on where it was")
        return 128 + stops[0]
    for words in failed.values():
        print(f"problem: {plain_lines(words)}")
    if failed:
        ready = len(cluster.hosts) - len(failed)
        print(f"{len(failed)} failed, {ready} ready; the same command goes on where it was")
        return 1
    from launch.verbs.check import check

    exit_code = check(job)
    if options.cluster is None and options.python is None and default_python() != SETUP_PYTHON:
        print(f"the other commands need it, too: --python {SETUP_PYTHON}")
    return exit_code


def with_python(cluster: Cluster, options: argparse.Namespace) -> Cluster:
    """Returns the cluster with the venv that setup makes, if its description names no Python."""
    if options.cluster is not None or options.python is not None:
        return cluster
    hosts = tuple(replace(host, python=SETUP_PYTHON) for host in cluster.hosts)
    return replace(cluster, hosts=hosts)


def _wanted(job: Job, options: argparse.Namespace) -> Wanted:
    root, folder = Path(code_folder()), job.folder("data")
    here = root / os.path.expanduser(folder)
    try:
        code = code_files(root, options.requirements)
        found = None if options.source is not None else records(here)
    except OSError as error:
        raise LaunchError(f"{error.filename}: {error.strerror}; it must be readable here") from None
    return Wanted(code, options.requirements, found, folder, options.source)


def _prepare(
    cluster: Cluster, wanted: Wanted, transport: Transport, stops: Sequence[int]
) -> dict[str, str]:
    """Prepares all hosts, or ends early once `stops` has a signal.

    Returns:
      Host name -> why it failed.
    """
    setups: list[HostSetup] = []
    closed: list[HostSetup] = []

    def prepare(host: Host) -> None:
        one = HostSetup(
            host,
            wanted,
            lambda part, words: bars.show(host.name, part, words),
            lambda words: bars.line(host.name, words),
        )
        setups.append(one)
        try:
            if not stops:
                one.run(transport)
        except HostError:
            bars.end(host.name, "failed")
            raise
        bars.show(host.name, 1.0, "ready")
        bars.end(host.name, "ready")

    def meanwhile() -> None:
        for one in setups if stops else ():
            if one not in closed:
                closed.append(one)
                # A silent host takes seconds, during which the others are closed.
                threading.Thread(target=one.close, daemon=True).start()

    bars = Bars([host.name for host in cluster.hosts])
    try:
        return everywhere(cluster.hosts, prepare, at_once=_AT_ONCE, meanwhile=meanwhile).failed
    finally:
        bars.close()
