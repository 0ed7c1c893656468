"""Runs a job with one agent on each host, over any transport, and again if its ports were taken."""

import os
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from launch.agent.protocol import Message
from launch.cluster.job_token import with_token
from launch.cluster.ports import num_ports
from launch.cluster.tasks import SCRIPT, Job, Task, make_job
from launch.connect.connections import Connections, Event
from launch.connect.inbox import Inbox
from launch.connect.transport import OPEN_SECS, Transport
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.agents import Agents
from launch.supervise.run_loop import RunLoop, stop_signals
from launch.supervise.supervisor import Supervisor

_UNREAD = 64  # messages of hosts, which may have a megabyte each
_LOOK_SECS = 0.25
_MORE_PORTS = 3  # how often a job starts again because another program took a port


def run_with_agents(
    job: Job,
    folder: RunFolder,
    transport: Transport,
    display: Display,
    adapt: Optional[Callable[[Job], Job]] = None,
    containers: Optional[Message] = None,
) -> Outcome:
    """Runs a job to its end, then ends every agent that can be reached, even after an error.

    Args:
      job: the job to run.
      folder: the run's folder, for status and logs.
      transport: how the launcher reaches the hosts.
      display: shows the job's progress to the user.
      adapt: a function that changes the tasks' commands once every port is known, for backends that
        wrap the commands.
      containers: the arguments of `launch.agent.containers.Containers`; None for tasks that are
        plain processes.

    Raises:
      LaunchError: a variable to pass to the tasks is not set in this process.
      HostError: a host could not be reached at the start, or did not report free ports.
    """
    events: Inbox[Event] = Inbox(_UNREAD + 2 * len(job.cluster.hosts))
    job = with_token(job)
    passed = passed_values(job.cluster.passed)
    connections = Connections(job.cluster, folder.run_id, transport, events, containers)

    def attempt(ready: Job) -> tuple[Outcome, Sequence[str]]:
        """Runs the job; returns its outcome, and the tasks that failed early for their ports."""
        cluster = ready.cluster
        supervisor = Supervisor(ready.tasks, cluster.limits, cluster.restarts, time.monotonic())
        loop = RunLoop(supervisor, folder, display, events, signals, not transport.keeps_logs)
        orders = {
            task.name: _order_to_start(
                task,
                {**dict(cluster.environment), **passed},
                masked=sorted(passed),
                log=transport.log_path(folder.log_path(task.name), folder.run_id),
            )
            for task in ready.tasks
        }
        agents = Agents(supervisor, loop, connections, orders)
        outcome = loop.run(agents)
        is_early = outcome.cause is Cause.TASK_FAILED and not loop.has_stepped
        return outcome, agents.without_port if is_early else []

    with stop_signals() as signals:
        try:
            if not connections.open_all(lambda: bool(signals)):
                return _not_started(signals)
            finds_ports = job.cluster.ports.low is None
            outcome: Optional[Outcome] = None
            number = 0
            while True:
                ready = _with_free_ports(job, connections, events, signals) if finds_ports else job
                if ready is None:
                    return outcome or _not_started(signals)
                outcome, taken = attempt(ready if adapt is None else adapt(ready))
                number += 1
                is_last = number > _MORE_PORTS or not finds_ports
                if is_last or signals or not taken or not connections.has_all():
                    return outcome
                display.note(
                    f"another program took the port of {', '.join(taken)}: starting the job again "
                    f"with other ports ({number} of {_MORE_PORTS})"
                )
        finally:
            events.close()
            connections.close_all()


def _not_started(signals: Sequence[int]) -> Outcome:
    return Outcome(128 + signals[0], "stopped before the start", cause=Cause.USER)


def passed_values(names: Sequence[str]) -> dict[str, str]:
    """Returns the values of variables in this process's environment.

    Raises:
      LaunchError: a variable is not set.
    """
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise LaunchError(
            f"pass_environment: {', '.join(missing)} not set here; export it, or leave it out"
        )
    return {name: os.environ[name] for name in names}


def _with_free_ports(
    job: Job, connections: Connections, events: Inbox[Event], signals: Sequence[int]
) -> Optional[Job]:
    """Asks every host for free ports; returns the job with these ports, or None after a signal.

    Raises:
      HostError: a host was lost, did not answer in time, or has too few free ports.
    """
    found: dict[str, list[int]] = {}
    for host in job.cluster.hosts:
        connections.send(host.name, {"do": "ports", "count": num_ports(host)})
    deadline = time.monotonic() + OPEN_SECS
    while len(found) < len(job.cluster.hosts):
        if signals:
            return None
        connections.beat(time.monotonic())
        try:
            name, link, message = events.get(timeout=_LOOK_SECS)
        except queue.Empty:
            if time.monotonic() < deadline:
                continue
            missing = [host.name for host in job.cluster.hosts if host.name not in found]
            raise HostError(f"{', '.join(missing)}: did not report free ports") from None
        if link is None or not connections.is_current(name, link):
            continue  # from a connection of an earlier attempt
        if message["event"] == "ports":
            found[name] = message["ports"]
        elif message["event"] == "lost":
            raise HostError(f"{name}: {link.why()}")
    for host in job.cluster.hosts:
        if len(set(found[host.name])) != num_ports(host):
            count = len(set(found[host.name]))
            raise HostError(
                f"{host.name}: found {count} free ports for {num_ports(host)} tasks; end what uses "
                "so many, or name some with `ports:`"
            )
    return make_job(job.cluster, job.arguments, found)


def _order_to_start(
    task: Task, variables: Mapping[str, str], *, masked: Sequence[str], log: str
) -> Message:
    return {
        "do": "start",
        "task": task.name,
        "argv": list(task.argv),
        "script": SCRIPT if SCRIPT in task.argv else None,
        "cwd": task.host.workdir,
        "env": {"PYTHONUNBUFFERED": "1", **variables, "TF_CONFIG": task.tf_config},
        "masked": masked,
        "gpus": task.devices.gpus,
        "share": task.devices.share,
        "port": task.port,
        "log": log,
        "last": task.task_type == "ps",
    }
