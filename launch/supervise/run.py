"""Runs a job with one agent on each host, over any transport, and again if its ports were taken."""

import os
import queue
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional, Union

from launch.agent.protocol import Message
from launch.cluster.tasks import SCRIPT, Job, Task, make_job, num_ports, with_token
from launch.connect.connections import Connections, Event, Inbox
from launch.connect.transport import OPEN_SECS, Transport
from launch.errors import HostError, LaunchError
from launch.record import events as run_events
from launch.record.outcome import Cause, Outcome, end_record
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.agents import Agents
from launch.supervise.journal import Journal, run_ends
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

    def attempt(ready: Job) -> tuple[Outcome, Agents, bool]:
        """Runs the job; returns its outcome, its agents, and whether it failed before a step."""
        cluster = ready.cluster
        supervisor = Supervisor(ready.tasks, cluster.limits, cluster.restarts, time.monotonic())
        loop = RunLoop(supervisor, folder, display, events, signals)
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
        return outcome, agents, outcome.cause is Cause.TASK_FAILED and not loop.has_stepped

    with stop_signals() as signals:
        try:
            if not connections.open_all(lambda: bool(signals)):
                outcome = _stopped(signals, "stopped before the start")
                return _ended(outcome, folder, signals)
            finds_ports = job.cluster.ports.low is None
            number = 0
            while True:
                ready = job
                if finds_ports:
                    words = "" if number else "stopped before the start"
                    found = _with_free_ports(job, connections, events, signals, words)
                    if isinstance(found, Outcome):
                        found = _kept(found, folder) if number else found
                        return _ended(found, folder, signals)
                    ready = found
                outcome, agents, is_early = attempt(ready if adapt is None else adapt(ready))
                number += 1
                taken = agents.without_port if is_early and finds_ports else []
                if number > _MORE_PORTS or not taken:
                    return _ended(outcome, folder)
                # The job would start again, so it is a stop that ends it.
                if agents.platforms_reason:
                    outcome = _stopped_by_platform(agents.platforms_reason)
                    return _ended(_kept(outcome, folder), folder)
                if signals:
                    return _ended(_kept(_stopped(signals), folder), folder)
                if not connections.has_all():
                    return _ended(outcome, folder)
                why = (
                    f"another program took the port of {', '.join(taken)}: starting the job again "
                    f"with other ports ({number} of {_MORE_PORTS})"
                )
                display.note(why)
                run_events.add(folder, [run_events.event("restart", why)])
        finally:
            events.close()
            connections.close_all()


def _stopped(signals: Sequence[int], words: str = "") -> Outcome:
    name = signal.Signals(signals[0]).name
    return Outcome(128 + signals[0], words or f"stopped by {name}", cause=Cause.USER)


def _kept(outcome: Outcome, folder: RunFolder) -> Outcome:
    """Writes an outcome into the status file in place of the last attempt's; returns it."""
    folder.write_status({**folder.status(), "time": time.time(), **end_record(outcome)})
    return outcome


def _ended(outcome: Outcome, folder: RunFolder, signals: Sequence[int] = ()) -> Outcome:
    """Writes into events.jsonl how the run ended; returns it.

    Args:
      outcome: how the run ended.
      folder: the run's folder.
      signals: the user's signals that came while no attempt ran.
    """
    for signum in signals:
        Journal(folder, {}).asked_to_stop(signum)
    run_ends(folder, outcome)
    return outcome


def _stopped_by_platform(reason: str) -> Outcome:
    return Outcome(128 + signal.SIGTERM, reason, cause=Cause.PLATFORM)


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
    job: Job,
    connections: Connections,
    events: Inbox[Event],
    signals: Sequence[int],
    words: str = "",
) -> Union[Job, Outcome]:
    """Asks every host for free ports.

    Args:
      job: the job that needs ports.
      connections: the connections to the hosts.
      events: what the hosts send.
      signals: the user's signals that ask for the job's end, which may come meanwhile.
      words: what to say of the user's stop; "" to name the signal.

    Returns:
      The job with these ports, or its outcome if the user or the platform stops it meanwhile.

    Raises:
      HostError: a host was lost, did not answer in time, or has too few free ports.
    """
    found: dict[str, list[int]] = {}
    for host in job.cluster.hosts:
        connections.send(host.name, {"do": "ports", "count": num_ports(host)})
    until, is_stopped = time.monotonic() + OPEN_SECS, False
    while len(found) < len(job.cluster.hosts):
        if signals and not is_stopped:  # it may be the platform's, as agents would tell
            until, is_stopped = time.monotonic() + _LOOK_SECS, True
        try:
            name, link, message = events.get(timeout=_LOOK_SECS)
        except queue.Empty:
            if not is_stopped and time.monotonic() > until:
                missing = [host.name for host in job.cluster.hosts if host.name not in found]
                raise HostError(f"{', '.join(missing)}: did not report free ports") from None
            link = None
        if is_stopped and time.monotonic() > until:
            return _stopped(signals, words)
        if link is None or not connections.is_current(name, link):
            continue  # nothing, or from a connection of an earlier attempt
        if message["event"] == "ports":
            found[name] = message["ports"]
        elif message["event"] == "told":
            return _stopped_by_platform(f"{name}: {message['reason']}")
        elif message["event"] == "orphaned" and message["by_platform"]:
            return _stopped_by_platform(f"{name}: its agent stopped: {message['reason']}")
        elif message["event"] == "lost":
            raise HostError(f"{name}: {link.why()}")
    if signals:
        return _stopped(signals, words)
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
