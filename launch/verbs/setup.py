"""`setup`: prepares bare hosts, so that `check` finds nothing missing; then checks them."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from launch.backends.registry import BACKENDS
from launch.cluster.host_list import SETUP_PYTHON, code_folder, default_python
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import make_job
from launch.connect import preparing
from launch.errors import LaunchError
from launch.screen.row import plain, plain_lines
from launch.supervise.run_loop import stop_signals
from launch.verbs.check import check_job
from launch.verbs.flags import cluster_of


def setup(options: argparse.Namespace) -> int:
    """Prepares all hosts in parallel, then checks them; returns the exit code of the check.

    A host whose description names no Python gets `.venv`. A signal that ends it gives 128 and its
    number, such as 130 for Ctrl-C.

    Raises:
      LaunchError: the tasks do not run as processes over ssh, or a flag is wrong.
    """
    is_unsaid = options.cluster is None and options.python is None
    needs_venv = is_unsaid and options.on in (None, "ssh")
    if needs_venv:
        options.python = SETUP_PYTHON
    exit_code = setup_hosts(cluster_of(options), options)
    if needs_venv and default_python() != SETUP_PYTHON:
        print(f"the other commands need it, too: --python {SETUP_PYTHON}")
    return exit_code


def setup_hosts(cluster: Cluster, options: argparse.Namespace) -> int:
    """Prepares and checks the hosts of a cluster, as `setup` does."""
    backend = BACKENDS[cluster.backend]
    if cluster.backend != "ssh" or backend.transport is None:
        hint = "`make venv` prepares a checkout, and docs/launch.md says what each backend needs"
        raise LaunchError(f"setup prepares hosts of --on ssh, not of {cluster.backend}; {hint}")
    job = make_job(cluster, options.arguments)
    root, folder = Path(code_folder()), job.folder("data")
    found = preparing.records(root / os.path.expanduser(folder))
    if not found and "://" not in folder:
        words = "make them here or there: python -m data_prep --help"
        _say("records", f"none in {folder} here to copy; {words}")
    code = preparing.code_files(root, options.requirements, cluster.program)
    copy, data = preparing.code_step(code), preparing.records_step(found, folder)

    def steps(host: Host) -> Iterator[preparing.Step]:
        yield copy
        if found and host.trains:
            yield data
        if host.python == SETUP_PYTHON:
            venv = SETUP_PYTHON.partition("/")[0]
            values = {"lock": options.requirements, "agent_python": host.agent_python}
            yield preparing.Step("venv", {"venv": venv, **values})
        if host.trains:
            yield preparing.kernels_step(host.python)

    with stop_signals() as stops:
        failed = preparing.prepare(cluster.hosts, steps, backend.transport, _say, stops)
    if stops:
        print("stopped; the same command goes on where it was")
        return 128 + stops[0]
    for words in failed.values():
        print(f"problem: {plain_lines(words)}")
    if failed:
        ready = len(cluster.hosts) - len(failed)
        print(f"{len(failed)} failed, {ready} ready; the same command goes on where it was")
        return 1
    return check_job(job)


def _say(name: str, words: str) -> None:
    # At once: hosts speak at the same time.
    print(f"{name}: {plain(words)}\n", end="", flush=True)
