"""`check`: examines all hosts in parallel before a job starts."""

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Optional, TypeVar

from cifar10_program.streams import complain
from launch.backends.base import Backend, ContainerNeeds
from launch.backends.registry import backend_named
from launch.cluster.model import Host
from launch.cluster.tasks import CODE, PROGRAM, SCRIPT, Job
from launch.connect.agent_client import Closing, conversation
from launch.connect.everywhere import everywhere
from launch.connect.transport import Transport
from launch.errors import HostError, below_each_other
from launch.screen.plain import plain_lines
from launch.supervise.run_loop import stop_signals
from launch.verbs.facts import Facts, cells, columns, problems, warnings

T = TypeVar("T")


def check(job: Job) -> int:
    """Prints the facts about the hosts, problems and warnings; returns 1 for a problem, else 0.

    For a backend with a scheduler that can judge a job, prints its answer instead.

    Raises:
      LaunchError: a scheduler refuses the job, or cannot be asked.
    """
    backend = backend_named(job.cluster.backend)
    if backend.transport is None:
        print(plain_lines("\n".join(backend.check(job))))
        return 0
    from rich.table import Table

    from launch.screen.table import cell, print_table

    containers = backend.containers(job)
    facts = gather(job, backend.transport, containers)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns(containers):
        table.add_column(column, no_wrap=True)
    for host in job.cluster.hosts:
        table.add_row(*map(cell, cells(host, facts[host.name], containers)))
    print_table(table)
    wrong = problems(job, facts, containers)
    for problem in wrong:
        print(f"problem: {plain_lines(problem)}")
    for warning in warnings(job, facts):
        print(f"warning: {plain_lines(warning)}")
    if not wrong:
        print("everything is in place")
    return 1 if wrong else 0


def refuse_problems(job: Job, backend: Backend) -> None:
    """Checks the hosts before a job starts; writes warnings to standard error.

    Raises:
      HostError: there are problems; the message names all of them.
    """
    containers = backend.containers(job)
    assert backend.transport is not None
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

    def everyone(ask: Callable[[Host], T]) -> dict[str, T]:
        """Asks each host that was reachable so far; marks those that fail as unreachable."""
        reached = [host for host in hosts if facts[host.name].unreachable is None]
        answers = everywhere(reached, ask, meanwhile=closing.look)
        for name, why in answers.failed.items():
            facts[name].unreachable = why
        return answers.found

    with stop_signals() as stops, ExitStack() as stack:
        closing = Closing(stops)
        agents = everyone(
            lambda host: stack.enter_context(conversation(transport, host, closing.note))
        )

        def look(host: Host) -> None:
            asked = time.time()
            answer = agents[host.name](_questions(job, host, containers))
            facts[host.name].found = answer
            facts[host.name].clock_secs = answer["clock"] - asked

        def free_ports(host: Host) -> list[int]:
            return [port for port, why_not in facts[host.name].found["ports"] if why_not is None]

        tokens = {host.name: secrets.token_hex(8) for host in hosts}

        def listen(host: Host) -> None:
            order = {"do": "listen", "ports": free_ports(host), "token": tokens[host.name]}
            agents[host.name](order)

        def dial(host: Host) -> None:
            targets = [
                (other.address, port, tokens[other.name])
                for other in hosts
                if other is not host and facts[other.name].unreachable is None
                for port in free_ports(other)
            ]
            answer = agents[host.name]({"do": "dial", "targets": targets})
            facts[host.name].not_dialled = answer["failures"]

        for question in (look, listen, dial):
            everyone(question)
    if stops:
        raise SystemExit(128 + stops[0])
    return facts


def _questions(job: Job, host: Host, containers: Optional[ContainerNeeds]) -> dict[str, object]:
    records = job.folder("data") if containers is None else containers.records
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
