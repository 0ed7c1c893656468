"""`setup`: prepares bare hosts, so that `check` finds nothing missing; then checks them."""

import argparse
import os
import posixpath
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Optional

from launch.backends.registry import backend_named
from launch.cluster.host_list import code_folder, default_python
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import make_job
from launch.connect.preparing import (
    Step,
    code_files,
    code_step,
    kernels_step,
    prepare,
    records,
    records_step,
    venv_step,
)
from launch.errors import LaunchError
from launch.screen.row import plain, plain_lines
from launch.supervise.run_loop import stop_signals
from launch.verbs.check import check_job
from launch.verbs.flags import cluster_of
from launch.verbs.init import SETUP_PYTHON


def setup(options: argparse.Namespace) -> int:
    """Prepares all hosts in parallel, then checks them; returns the exit code of the check.

    A signal that ends it gives 128 and its number, such as 130 for Ctrl-C.

    Raises:
      LaunchError: the tasks do not run as processes over ssh, or a flag is wrong.
    """
    return setup_hosts(with_python(cluster_of(options), options), options)


def setup_hosts(cluster: Cluster, options: argparse.Namespace) -> int:
    """Prepares and checks the hosts of a cluster, as `setup` does."""
    backend = backend_named(cluster.backend)
    if cluster.backend != "ssh" or backend.transport is None:
        way_out = "`make venv` prepares a checkout, and docs/launch.md says what each backend needs"
        raise LaunchError(f"setup prepares hosts of --on ssh, not of {cluster.backend}; {way_out}")
    job = make_job(cluster, options.arguments)
    root, folder = Path(code_folder()), job.folder("data")
    found = records(root / os.path.expanduser(folder))
    if not found:
        words = "make them here or there: python -m data_prep --help"
        _say("records", f"none in {folder} here to copy; {words}")
    code = code_files(root, options.requirements)
    copy, data = code_step(code), records_step(found, folder)
    with stop_signals() as stops:

        def steps(host: Host) -> Iterator[Step]:
            venv = venv_of(host)
            yield copy
            if found and host.trains:
                yield data
            if venv is not None:
                yield venv_step(venv, host.agent_python, options.requirements)
            if host.trains:
                yield kernels_step(host.python)

        failed = prepare(cluster.hosts, steps, backend.transport, _say, stops)
    if stops:
        print("stopped; the same command goes on where it was")
        return 128 + stops[0]
    for words in failed.values():
        print(f"problem: {plain_lines(words)}")
    if failed:
        ready = len(cluster.hosts) - len(failed)
        print(f"{len(failed)} failed, {ready} ready; the same command goes on where it was")
        return 1
    exit_code = check_job(job)
    if options.cluster is None and options.python is None and default_python() != SETUP_PYTHON:
        print(f"the other commands need it, too: --python {SETUP_PYTHON}")
    return exit_code


def with_python(cluster: Cluster, options: argparse.Namespace) -> Cluster:
    """Returns the cluster with the venv that setup makes, if its description names no Python."""
    if options.cluster is not None or options.python is not None:
        return cluster
    hosts = tuple(replace(host, python=SETUP_PYTHON) for host in cluster.hosts)
    return replace(cluster, hosts=hosts)


def venv_of(host: Host) -> Optional[str]:
    """Returns the venv that a host's Python belongs to; None if it is the host's own Python.

    `VENV/bin/python` in the working directory, such as `.venv/bin/python`, belongs to a venv that
    `setup` may make.
    """
    place = posixpath.relpath(posixpath.join(host.workdir, host.python), host.workdir)
    *folder, bin_name, name = ["", *place.split("/")]
    is_venv = bin_name == "bin" and name.startswith("python") and ".." not in folder
    return "/".join(filter(None, folder)) or None if is_venv else None


def _say(name: str, words: str) -> None:
    sys.stdout.write(f"{name}: {plain(words)}\n")  # at once: hosts speak at the same time
    sys.stdout.flush()
