"""`plan` and `check`: what would run where, and whether all hosts are ready for it."""

import argparse
import contextlib
import json
import socket
from typing import Optional

from launch.backends.base import Backend
from launch.backends.registry import BACKENDS
from launch.cluster.model import FREE_PORTS
from launch.cluster.show import as_documents, variables
from launch.cluster.tasks import Job, make_job, num_ports
from launch.errors import HostError, below_each_other
from launch.screen.display import print_json
from launch.screen.row import plain_lines
from launch.verbs.flags import cluster_of


def plan(options: argparse.Namespace) -> int:
    """Prints what would run where, or with --shell what to run by hand; contacts nobody."""
    cluster = cluster_of(options)
    backend = BACKENDS[cluster.backend]
    ports: Optional[dict[str, list[int]]] = None
    if backend.is_this_machine and cluster.ports == FREE_PORTS:  # up chooses others
        (host,) = cluster.hosts
        with contextlib.ExitStack() as held:
            free = [socket.create_server(("127.0.0.1", 0)) for _ in range(num_ports(host))]
            ports = {host.name: [held.enter_context(server).getsockname()[1] for server in free]}
    job = make_job(cluster, options.arguments, ports)
    if options.json:
        tasks = [
            {"task": task.name, "host": task.host.name, "user": task.host.user, "port": task.port,
             "address": task.host.address, "workdir": task.host.workdir, "argv": task.argv,
             "TF_CONFIG": json.loads(task.tf_config), "gpus": task.devices.gpus}
            for task in backend.addressed(job).tasks
        ]  # fmt: skip
        files = [vars(document) for document in backend.plan(job)] if backend.survives else []
        print_json(backend=backend.name, tasks=tasks, environment=variables(job), documents=files)
        return 0
    print(as_documents(backend.plan(job)) if options.shell else backend.plan_text(job))
    return 0


def check(options: argparse.Namespace) -> int:
    """Examines all hosts in parallel; see `check_job`."""
    return check_job(make_job(cluster_of(options), options.arguments), as_json=options.json)


def check_job(job: Job, *, as_json: bool = False) -> int:
    """Prints the facts about the hosts and the problems; returns 1 for a problem, else 0.

    For a backend with a scheduler that can judge a job, prints its answer instead.

    Raises:
      LaunchError: the backend can check neither hosts nor the job.
    """
    found = BACKENDS[job.cluster.backend].check(job)
    if as_json:
        print_json(hosts=found.hosts, problems=found.problems, said=found.said)
    else:
        print(plain_lines("\n".join(found.lines())))
    return 1 if found.problems else 0


def refuse_problems(job: Job, backend: Backend) -> None:
    """Checks the hosts before a job starts.

    Raises:
      HostError: there are problems; the message names all of them.
    """
    if wrong := backend.check(job).problems:
        raise HostError(below_each_other([*wrong, "to start anyway: --no-check"]))
