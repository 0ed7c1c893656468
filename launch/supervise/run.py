"""Runs a job with one agent on each host, over any transport.

The supervisor makes the decisions. This module sends them to the agents as orders, and reports the
agents' messages to the supervisor.
"""

import itertools
import os
import queue
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from launch.agent.protocol import Message
from launch.cluster.job_token import with_token
from launch.cluster.ports import num_ports
from launch.cluster.tasks import SCRIPT, Job, Task, make_job
from launch.connect.connections import Connections, Event
from launch.connect.inbox import Inbox
from launch.connect.link import Link
from launch.connect.transport import OPEN_SECS, Transport
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.actions import Action, Note, Start
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
        agents = _Agents(supervisor, loop, connections, orders)
        outcome = loop.run(agents)
        is_early = outcome.cause is Cause.TASK_FAILED and not loop.has_stepped
        return outcome, agents.without_port if is_early else []

    with stop_signals() as signals:
        try:
            if not connections.open_all(lambda: bool(signals)):
                return Outcome(128 + signals[0], "stopped before the start", cause=Cause.USER)
            finds_ports = job.cluster.ports.low is None
            for number in itertools.count(1):
                ready = _with_free_ports(job, connections, events) if finds_ports else job
                outcome, taken = attempt(ready if adapt is None else adapt(ready))
                is_last = number > _MORE_PORTS or not finds_ports
                if is_last or signals or not taken or not connections.has_all():
                    break
                display.note(
                    f"another program took the port of {', '.join(taken)}: starting the job again "
                    f"with other ports ({number} of {_MORE_PORTS})"
                )
            return outcome
        finally:
            events.close()
            connections.close_all()


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


def _with_free_ports(job: Job, connections: Connections, events: Inbox[Event]) -> Job:
    """Asks every host for free ports; returns the job with these ports.

    Raises:
      HostError: a host was lost, did not answer in time, or has too few free ports.
    """
    found: dict[str, list[int]] = {}
    for host in job.cluster.hosts:
        connections.send(host.name, {"do": "ports", "count": num_ports(host)})
    deadline = time.monotonic() + OPEN_SECS
    while len(found) < len(job.cluster.hosts):
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


class _Agents:
    """Sends the supervisor's decisions to the agents, and reports the agents' messages to it.

    Args:
      supervisor: the object that decides which tasks to start and to signal.
      loop: the run loop, which takes the tasks' lines and notes for the user.
      connections: the connections to the agents.
      orders: task's name -> the order that starts the task.
      clock: returns the time in seconds.

    Attributes:
      without_port: the tasks that ended because another process had their port.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        loop: RunLoop[Event],
        connections: Connections,
        orders: Mapping[str, Message],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor, self._loop, self._connections = supervisor, loop, connections
        self._orders, self._clock = orders, clock
        self._waiting: dict[str, list[Message]] = {}  # host's name -> starts for the reconnection
        # Whether the SIGTERM of a platform that the agents report is still to come to this process.
        self._is_sigterm_due: Optional[bool] = None
        self.without_port: list[str] = []

    def start(self) -> None:
        """Starts all tasks."""
        self._carry_out(self._supervisor.start())

    def handle(self, event: Event) -> None:
        """Handles an agent's message, or the result of connecting to a host again."""
        host, link, message = event
        if message["event"] in ("connected", "unreachable"):
            self._reconnected(host, link, message)
        elif link is None or not self._connections.is_current(host, link):
            return  # from a dropped connection
        elif "task" in message:
            name = message["task"]
            state = self._supervisor.states.get(name)
            if state is not None and state.task.host.name == host:
                self._take_from_task(name, host, message)
            else:
                self._loop.note(f"{host}: ignored a message about {name}, which it does not run")
        else:
            self._take_from_agent(host, link, message)

    def stop(self, signum: int, count: int) -> None:
        """Stops all tasks in order at the first signal, and kills them at the second one."""
        if self._is_sigterm_due and signum == signal.SIGTERM:
            self._is_sigterm_due = False  # one request: Slurm signals the agents and this process
            return
        self._loop.note(f"{signal.Signals(signum).name}: stopping all tasks")
        self._carry_out(self._supervisor.stop(signum, self._clock()))

    def tick(self, now: float) -> None:
        """Carries out what is due, sends heartbeats, and gives up hosts with silent agents."""
        self._carry_out(self._supervisor.tick(now))
        for name, link in self._connections.beat(now):
            self._lose(
                name, link, f"no message from its agent for {self._connections.lease_secs:g} s"
            )

    def has_lines_to_come(self) -> bool:
        """Returns False: an agent sends a task's last lines before it reports the task's end."""
        return False

    def _take_from_task(self, name: str, host: str, message: Message) -> None:
        event, now = message["event"], self._clock()
        if event == "lines":
            lines = list(message["lines"])
            if message["dropped"]:
                lines.insert(0, f"[{message['dropped']:,} lines are only in the log on {host}]")
            self._loop.take_lines(name, host, lines)
        elif event == "started":
            self._supervisor.started(name)
        elif event == "exit":
            if message["stragglers"]:
                self._loop.note(f"{name} left {message['stragglers']} processes behind: ended")
            if message["port_taken"]:
                self.without_port.append(name)
            # The code is None if the task was not started.
            code, reason = message["code"], message["reason"]
            signals = message["signals"]
            self._carry_out(self._supervisor.ended(name, code, now, reason, signals=signals))

    def _take_from_agent(self, host: str, link: Link, message: Message) -> None:
        event = message["event"]
        if event == "lost":
            self._lose(host, link, f"lost: {link.why()}")
        elif event == "orphaned":
            cause = Cause.PLATFORM if message["by_platform"] else Cause.HOST_LOST
            reason = f"lost: its agent stopped: {message['reason']}"
            self._lose(host, link, reason, cause)
        elif event == "note":
            self._loop.note(f"{host}: {message['text']}")
        elif event == "told":
            self._told(f"{host}: {message['reason']}")

    def _told(self, reason: str) -> None:
        """Stops all tasks for the platform; as every agent says so, only the first word is news."""
        before, now = self._supervisor.verdict, self._clock()
        if self._is_sigterm_due is None:
            self._is_sigterm_due = before is None or before.cause is not Cause.USER
        actions = self._supervisor.stop(signal.SIGTERM, now, reason, Cause.PLATFORM)
        if self._supervisor.verdict is not before:
            self._loop.note(f"{reason}; stopping all tasks")
        self._carry_out(actions)

    def _lose(self, host: str, link: Link, reason: str, cause: Cause = Cause.HOST_LOST) -> None:
        """Drops a host's connection, and records its tasks as ended: the agent will end them."""
        if not self._connections.is_current(host, link):
            return
        self._connections.drop(host)
        for name, state in self._supervisor.states.items():
            if state.task.host.name == host:
                now = self._clock()
                self._carry_out(self._supervisor.ended(name, None, now, reason, cause))

    def _reconnected(self, host: str, link: Optional[Link], message: Message) -> None:
        if link is not None:
            self._connections.use(host, link)
        for order in self._waiting.pop(host):
            if not self._connections.send(host, order):
                name, now = order["task"], self._clock()
                reason = message["reason"]
                self._carry_out(self._supervisor.ended(name, None, now, reason, Cause.HOST_LOST))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Note):
                self._loop.note(action.text)
                continue
            host = self._supervisor.states[action.task].task.host.name
            if isinstance(action, Start):
                self._send_start(host, self._orders[action.task])
            else:
                order = {"do": "signal", "task": action.task, "signal": int(action.signum)}
                self._connections.send(host, order)
        if self._supervisor.ending:
            self._withdraw_starts()

    def _send_start(self, host: str, order: Message) -> None:
        """Sends the order to start a task, now or when its host is connected again."""
        if self._connections.send(host, order):
            return
        if host not in self._waiting:
            self._waiting[host] = []
            self._connections.reopen(host)
        self._waiting[host].append(order)

    def _withdraw_starts(self) -> None:
        """Takes back the orders that wait for a host: nothing is started after the end begins."""
        names = [order["task"] for orders in self._waiting.values() for order in orders]
        self._waiting = {host: [] for host in self._waiting}
        for name in names:
            self._carry_out(self._supervisor.withdrawn(name, self._clock()))
