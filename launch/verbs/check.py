"""`plan` and `check`: what would run where, and whether all hosts are ready for it."""

import argparse
from typing import Any, Optional

from cifar10_program.streams import complain
from launch.backends.base import Backend, ContainerNeeds
from launch.backends.registry import backend_named
from launch.cluster.model import Host
from launch.cluster.show import as_documents
from launch.cluster.tasks import CODE, PROGRAM, SCRIPT, Job, make_job
from launch.connect.agent_client import Questions
from launch.connect.link import Transport
from launch.errors import HostError, below_each_other
from launch.screen.row import plain_lines
from launch.supervise.run_loop import stop_signals
from launch.verbs.facts import Facts, cells, problems, warnings
from launch.verbs.flags import cluster_of


def plan(options: argparse.Namespace) -> int:
    """Prints what would run where, or with --shell what to run by hand; contacts nobody."""
    job = make_job(cluster_of(options), options.arguments)
    backend = backend_named(job.cluster.backend)
    print(as_documents(backend.plan(job)) if options.shell else backend.plan_text(job))
    return 0


def check(options: argparse.Namespace) -> int:
    """Examines all hosts in parallel; see `check_job`."""
    return check_job(make_job(cluster_of(options), options.arguments))


def check_job(job: Job) -> int:
    """Prints the facts about the hosts, problems and warnings; returns 1 for a problem, else 0.

    For a backend with a scheduler that can judge a job, prints its answer instead.

    Raises:
      LaunchError: the backend can check neither hosts nor the job.
    """
    backend = backend_named(job.cluster.backend)
    if backend.transport is None:
        print(plain_lines("\n".join(backend.check(job))))
        return 0
    from launch.screen.table import print_table

    containers = backend.containers(job)
    facts = gather(job, backend.transport, containers)
    rows = [cells(host, facts[host.name], containers) for host in job.cluster.hosts]
    print_table([*max(rows, key=len)], [tuple(row.values()) for row in rows])
    wrong = problems(job, facts, containers)
    found = [f"problem: {one}" for one in wrong]
    found += [f"warning: {one}" for one in warnings(job, facts)]
    found += [] if wrong else ["everything is in place"]
    print(plain_lines("\n".join(found)))
    return 1 if wrong else 0


def refuse_problems(job: Job, backend: Backend) -> None:
    """Checks the hosts before a job starts; writes warnings to standard error.

    Raises:
      HostError: there are problems; the message names all of them.
    """
    assert backend.transport is not None
    containers = backend.containers(job)
    facts = gather(job, backend.transport, containers)
    for warning in warnings(job, facts):
        complain(f"warning: {plain_lines(warning)}")
    wrong = problems(job, facts, containers)
    if wrong:
        raise HostError(below_each_other([*wrong, "to start anyway: --no-check"]))


def gather(
    job: Job, transport: Transport, containers: Optional[ContainerNeeds]
) -> dict[str, Facts]:
    """Asks all hosts in parallel; returns host name -> the facts about the host.

    Signals that ask for the end close the connections, and raise SystemExit (128 + n).

    Args:
      job: the job that is to run.
      transport: the way to the hosts.
      containers: what the hosts need for containers; None if tasks are plain processes.
    """
    hosts = job.cluster.hosts
    facts = {host.name: Facts() for host in hosts}
    records = job.folder("data") if containers is None else containers.records

    def look(host: Host) -> dict[str, Any]:
        return {
            "do": "look",
            "cwd": host.workdir,
            "python": host.python if containers is None else None,
            "code": CODE if SCRIPT in PROGRAM else (),
            "engine": None if containers is None else containers.engine,
            "image": None if containers is None else containers.image,
            "data": records if host.trains else None,
            "ports": [task.port for task in job.on(host) if task.port is not None],
        }

    def dial(host: Host) -> dict[str, Any]:
        targets = [
            (other.address, port)
            for other in reached
            if other is not host
            for port, why_not in facts[other.name].found["ports"]
            if why_not is None
        ]
        return {"do": "dial", "targets": targets}

    with stop_signals() as stops, Questions(transport, stops) as questions:
        looked = questions.ask(hosts, look)
        for name, found in looked.found.items():
            facts[name].found = found
        reached = [host for host in hosts if host.name in looked.found]
        dialled = questions.ask(reached, dial)
    for name, answer in dialled.found.items():
        facts[name].not_dialled = answer["failures"]
    for name, why in {**looked.failed, **dialled.failed}.items():
        facts[name].unreachable = why
    return facts
